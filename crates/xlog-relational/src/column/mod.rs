//! Columns: values of one type in device memory, and which of them are there.
//!
//! A column owns shares of its memory, and never changes: a table, its projections and operators on
//! other threads use the same memory, and the runtime orders what they do with it. Memory is typed
//! by width alone (one, four or eight bytes a value), so one kernel serves every type of a width;
//! what the bits mean is the column's [`DataType`].

mod dictionary;
mod download;
mod native;
mod values;

use std::{fmt, sync::Arc};

use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

pub use dictionary::{Dictionary, DictionaryBuilder, Unified};
pub(crate) use download::{ColumnDownload, HostBytes};
pub use native::Native;
pub use values::Values;

use crate::{
    Engine,
    error::{RelationalError, RelationalResult},
    types::DataType,
};

/// The values of one column on a device. Cheap to clone: the memory is shared.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, DataType, Engine, RelationalError};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let column = Column::from_slice(&engine, &[3u32, 1, 2], StreamId::DEFAULT)?;
/// assert_eq!((column.len(), column.data_type()), (3, DataType::U32));
/// let names = [Some("ada"), None, Some("ada")];
/// let column = Column::from_strings(&engine, names, StreamId::DEFAULT)?;
/// assert_eq!(column.null_count(), Some(1));
/// assert_eq!(column.dictionary().map(|dictionary| dictionary.len()), Some(1));
/// # Ok::<(), RelationalError>(())
/// ```
#[derive(Clone)]
pub struct Column {
    engine: Engine,
    parts: ColumnParts,
}

/// What a column is made of, for operators that make one.
#[derive(Clone, Debug)]
pub struct ColumnParts {
    /// The type of the values.
    pub data_type: DataType,
    /// How many rows there are.
    pub len: usize,
    /// The values, at least one and at least `len` of them. What stands in a row that is missing
    /// means nothing, but for text: there it is a code of the dictionary, or 0, so that a lookup by
    /// code never leaves its table.
    pub values: Values,
    /// One bit a row, set if its value is there: row `i` is bit `i % 32` of word `i / 32`, which
    /// is Arrow's bitmap. At least one word; bits past the last row are 0. `None`: all are there.
    pub validity: Option<Arc<TrackedCudaSlice<u32>>>,
    /// How many values are missing, if somebody has counted.
    pub null_count: Option<u64>,
    /// What the codes stand for: there for text, and only there.
    pub dictionary: Option<Arc<Dictionary>>,
}

impl Column {
    /// A column of memory that was allocated from `engine`. Widths and lengths are checked.
    pub fn from_parts(engine: &Engine, mut parts: ColumnParts) -> RelationalResult<Self> {
        let held = parts.values.len();
        let words = parts.validity.as_ref().map_or(usize::MAX, |words| words.len());
        let refuse = |reason: String| {
            let expression = format!("a column of {}", parts.data_type);
            Err(RelationalError::UnsupportedExpression { expression, reason })
        };
        if parts.values.physical() != parts.data_type.physical() {
            let (given, size) = (parts.values.physical().size(), parts.data_type.size());
            return refuse(format!("its memory has values of {given} bytes; expected {size}"));
        }
        if held < parts.len || words < validity_words(parts.len) {
            return refuse(format!("its memory is shorter than its {} rows", parts.len));
        }
        if parts.dictionary.is_some() != (parts.data_type == DataType::Utf8) {
            return refuse("text has a dictionary, and nothing else has".to_owned());
        }
        if parts.validity.is_none() {
            parts.null_count = Some(0);
        }
        Ok(Self { engine: engine.clone(), parts })
    }

    /// A column of numbers, all of them there.
    pub fn from_slice<T: Native>(
        engine: &Engine,
        values: &[T],
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let (data_type, len) = (T::DATA_TYPE, values.len());
        let values = Values::upload(engine, values, stream)?;
        Self::complete(engine, data_type, len, values, None, None)
    }

    /// A column of numbers, some of them missing.
    pub fn from_options<T: Native>(
        engine: &Engine,
        values: &[Option<T>],
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let plain: Vec<T> = values.iter().map(|value| value.unwrap_or(T::zeroed())).collect();
        let validity = Validity::of(values.iter().map(Option::is_some));
        let memory = Values::upload(engine, &plain, stream)?;
        let validity = validity.upload(engine, stream)?;
        Self::complete(engine, T::DATA_TYPE, values.len(), memory, validity, None)
    }

    /// A column of truth values.
    pub fn from_bools(
        engine: &Engine,
        values: &[Option<bool>],
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value == Some(true))).collect();
        let validity = Validity::of(values.iter().map(Option::is_some));
        let memory = Values::upload(engine, &bytes, stream)?;
        let validity = validity.upload(engine, stream)?;
        Self::complete(engine, DataType::Bool, values.len(), memory, validity, None)
    }

    /// A column of text, with a dictionary of its own.
    pub fn from_strings<'s>(
        engine: &Engine,
        strings: impl IntoIterator<Item = Option<&'s str>>,
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let mut builder = DictionaryBuilder::new();
        let (mut codes, mut there) = (Vec::new(), Vec::new());
        for string in strings {
            codes.push(string.map_or(Ok(0), |string| builder.code_of(string))?);
            there.push(string.is_some());
        }
        let validity = Validity::of(there.iter().copied());
        Self::from_codes(engine, &codes, &validity, Arc::new(builder.finish()), stream)
    }

    /// A column of text whose codes are known.
    pub(crate) fn from_codes(
        engine: &Engine,
        codes: &[u32],
        validity: &Validity,
        dictionary: Arc<Dictionary>,
        stream: StreamId,
    ) -> RelationalResult<Self> {
        let memory = Values::upload(engine, codes, stream)?;
        let validity = validity.upload(engine, stream)?;
        Self::complete(engine, DataType::Utf8, codes.len(), memory, validity, Some(dictionary))
    }

    /// A column of what was just uploaded.
    pub(crate) fn complete(
        engine: &Engine,
        data_type: DataType,
        len: usize,
        values: Values,
        validity: Option<(TrackedCudaSlice<u32>, u64)>,
        dictionary: Option<Arc<Dictionary>>,
    ) -> RelationalResult<Self> {
        let (validity, null_count) = match validity {
            Some((words, nulls)) => (Some(Arc::new(words)), Some(nulls)),
            None => (None, Some(0)),
        };
        let parts = ColumnParts { data_type, len, values, validity, null_count, dictionary };
        Self::from_parts(engine, parts)
    }

    /// The same memory under another type of the same width: an `i32` as the date it counts, say.
    /// Text can be neither side of it.
    pub fn reinterpret(&self, data_type: DataType) -> RelationalResult<Self> {
        if self.data_type() == DataType::Utf8 || data_type == DataType::Utf8 {
            let found = self.data_type();
            return Err(RelationalError::type_mismatch("the column", data_type, found));
        }
        Self::from_parts(&self.engine, ColumnParts { data_type, ..self.parts.clone() })
    }

    /// The engine whose memory it is.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The type of its values.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.parts.data_type
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Makes it that long, if nothing is missing in it and its memory is.
    pub(crate) fn set_len(&mut self, len: usize) -> bool {
        let fits = self.parts.validity.is_none() && len <= self.parts.values.len();
        if fits {
            self.parts.len = len;
        }
        fits
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.len == 0
    }

    /// Its values.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.parts.values
    }

    /// Which values are there; `None` if all are. See [`ColumnParts::validity`].
    #[must_use]
    pub fn validity(&self) -> Option<&Arc<TrackedCudaSlice<u32>>> {
        self.parts.validity.as_ref()
    }

    /// Whether values may be missing.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.parts.validity.is_some()
    }

    /// How many values are missing, if that is known without asking the device.
    #[must_use]
    pub fn null_count(&self) -> Option<u64> {
        self.parts.null_count
    }

    /// What the codes of a column of text stand for.
    #[must_use]
    pub fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        self.parts.dictionary.as_ref()
    }

    /// All of the above, shared: to make a column that differs in one of them.
    #[must_use]
    pub fn parts(&self) -> &ColumnParts {
        &self.parts
    }
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.fmt(f)
    }
}

/// How many words the validity of `len` rows takes.
#[must_use]
pub const fn validity_words(len: usize) -> usize {
    if len == 0 { 1 } else { len.div_ceil(32) }
}

/// Which rows are there, on the host, on the way to a device.
pub(crate) struct Validity {
    words: Vec<u32>,
    nulls: u64,
}

impl Validity {
    /// Of one answer for each row.
    pub(crate) fn of(there: impl ExactSizeIterator<Item = bool>) -> Self {
        let mut words = vec![0; validity_words(there.len())];
        let mut nulls = 0;
        for (row, there) in there.enumerate() {
            words[row / 32] |= u32::from(there) << (row % 32);
            nulls += u64::from(!there);
        }
        Self { words, nulls }
    }

    /// Of words that are laid out already.
    pub(crate) fn of_words(words: Vec<u32>, nulls: u64) -> Self {
        Self { words, nulls }
    }

    /// In device memory, with the number of rows that are missing; `None` if none is.
    pub(crate) fn upload(
        &self,
        engine: &Engine,
        stream: StreamId,
    ) -> RelationalResult<Option<(TrackedCudaSlice<u32>, u64)>> {
        if self.nulls == 0 {
            return Ok(None);
        }
        let mut words = engine.alloc(self.words.len(), stream, "column validity")?;
        words.upload_on(&self.words, stream)?;
        Ok(Some((words, self.nulls)))
    }
}
