//! To Arrow.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    types::{
        ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int32Type, Int64Type,
        TimestampMicrosecondType, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{Field as ArrowField, Schema as ArrowSchema};
use bytemuck::Pod;
use bytes::Bytes;
use xlog_cuda::device_runtime::{PinnedBuffer, StreamId};

use crate::{
    column::{Column, ColumnDownload, Dictionary, HostBytes},
    error::{RelationalError, RelationalResult},
    table::Table,
    types::DataType,
};

/// A column on its way to an Arrow array.
#[must_use = "the array is there only where it is asked for: call wait()"]
#[derive(Debug)]
pub struct ArrayDownload {
    name: String,
    data_type: DataType,
    len: usize,
    dictionary: Option<Arc<Dictionary>>,
    memory: ColumnDownload,
}

/// A table on its way to a record batch.
#[must_use = "the batch is there only where it is asked for: call wait()"]
#[derive(Debug)]
pub struct TableDownload {
    columns: Vec<(ArrayDownload, bool)>,
    rows: usize,
}

impl Column {
    /// Starts copying the column to the host on `stream`, behind everything that writes it. Nothing
    /// blocks until [`ArrayDownload::wait`].
    pub fn start_download(&self, stream: StreamId) -> RelationalResult<ArrayDownload> {
        self.start_download_as("", stream)
    }

    fn start_download_as(&self, name: &str, stream: StreamId) -> RelationalResult<ArrayDownload> {
        Ok(ArrayDownload {
            name: name.to_owned(),
            data_type: self.data_type(),
            len: self.len(),
            dictionary: self.dictionary().cloned(),
            memory: ColumnDownload::start(self, stream)?,
        })
    }
}

impl Table {
    /// Starts copying the table to the host on `stream`, behind everything that writes it. Nothing
    /// blocks until [`TableDownload::wait`].
    pub fn start_download(&self, stream: StreamId) -> RelationalResult<TableDownload> {
        let columns: RelationalResult<Vec<_>> = self
            .columns()
            .map(|(name, column)| {
                Ok((column.start_download_as(name, stream)?, column.is_nullable()))
            })
            .collect();
        Ok(TableDownload { columns: columns?, rows: self.rows() as usize })
    }

    /// The table as a record batch, once everything that writes it is done.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
    /// use xlog_relational::{Column, Engine, RelationalError, Table};
    ///
    /// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
    /// let id = Column::from_slice(&engine, &[1u32, 2], StreamId::DEFAULT)?;
    /// let table = Table::new(&engine, [("id", id)])?;
    /// let batch = table.download(StreamId::DEFAULT)?;
    /// assert_eq!((batch.num_rows(), batch.num_columns()), (2, 1));
    /// # Ok::<(), RelationalError>(())
    /// ```
    pub fn download(&self, stream: StreamId) -> RelationalResult<RecordBatch> {
        self.start_download(stream)?.wait()
    }
}

impl TableDownload {
    /// Waits for the batch.
    pub fn wait(self) -> RelationalResult<RecordBatch> {
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (download, nullable) in self.columns {
            let name = download.name.clone();
            let array = download.wait()?;
            fields.push(ArrowField::new(name, array.data_type().clone(), nullable));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), arrays, &options)
            .map_err(|error| RelationalError::arrow("", error))
    }
}

impl ArrayDownload {
    /// Waits for the array. It holds pinned memory of the runtime until it is dropped.
    pub fn wait(self) -> RelationalResult<ArrayRef> {
        let Self { name, data_type, len, dictionary, memory } = self;
        let memory = memory.wait()?;
        let arriving = Arriving { name, len, memory };
        Ok(match data_type {
            DataType::U32 => Arc::new(arriving.plain::<UInt32Type>()?),
            DataType::U64 => Arc::new(arriving.plain::<UInt64Type>()?),
            DataType::I32 => Arc::new(arriving.plain::<Int32Type>()?),
            DataType::I64 => Arc::new(arriving.plain::<Int64Type>()?),
            DataType::F32 => Arc::new(arriving.plain::<Float32Type>()?),
            DataType::F64 => Arc::new(arriving.plain::<Float64Type>()?),
            DataType::Date32 => Arc::new(arriving.plain::<Date32Type>()?),
            DataType::Timestamp => Arc::new(arriving.plain::<TimestampMicrosecondType>()?),
            DataType::Bool => Arc::new(arriving.booleans()?),
            DataType::Utf8 => {
                let name = arriving.name.clone();
                let Some(dictionary) = dictionary else {
                    return Err(RelationalError::arrow(
                        &name,
                        "a column of text has no dictionary",
                    ));
                };
                let strings = Arc::new(dictionary.strings().clone());
                let array = DictionaryArray::try_new(arriving.plain::<UInt32Type>()?, strings);
                Arc::new(array.map_err(|error| RelationalError::arrow(&name, error))?)
            }
        })
    }
}

/// A column whose bytes are there.
struct Arriving {
    name: String,
    len: usize,
    memory: HostBytes,
}

impl Arriving {
    fn plain<T>(self) -> RelationalResult<PrimitiveArray<T>>
    where
        T: ArrowPrimitiveType<Native: Pod>,
    {
        let values = match self.memory.values {
            Some(buffer) => {
                // Arrow panics over misaligned memory; this is an error instead.
                buffer.values::<T::Native>()?;
                ScalarBuffer::new(taken_over(buffer), 0, self.len)
            }
            None => ScalarBuffer::from(Vec::new()),
        };
        PrimitiveArray::try_new(values, nulls(self.memory.validity, self.len))
            .map_err(|error| RelationalError::arrow(&self.name, error))
    }

    fn booleans(self) -> RelationalResult<BooleanArray> {
        let bytes: &[u8] = self.memory.values.as_deref().unwrap_or_default();
        let values = BooleanBuffer::collect_bool(self.len, |row| bytes[row] != 0);
        Ok(BooleanArray::new(values, nulls(self.memory.validity, self.len)))
    }
}

fn nulls(validity: Option<PinnedBuffer>, len: usize) -> Option<NullBuffer> {
    validity.map(|words| NullBuffer::new(BooleanBuffer::new(taken_over(words), 0, len)))
}

/// A pinned buffer in Arrow's hands: the same memory, given back when Arrow is done with it.
fn taken_over(buffer: PinnedBuffer) -> Buffer {
    struct Owner(PinnedBuffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Buffer::from(Bytes::from_owner(Owner(buffer)))
}
