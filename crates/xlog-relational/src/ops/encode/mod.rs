//! Keys of any types as words whose unsigned order is the order asked for.
//!
//! A key is a field of bits: a number after the change that orders its type, the rank of a text in
//! its dictionary, a truth value's one bit. A key that may be missing has one bit more, on top;
//! missing rows are zero below it, so equal, and keep their order. Fields are packed from the last
//! key upwards into as few words as hold them, at most 64 bits each: a sort by several small keys
//! is a sort by one word.

mod kernels;

use xlog_cuda::{
    LaunchDims,
    device_runtime::StreamId,
    launch::LaunchBuilder,
    memory::{ByteView, TrackedCudaSlice},
};

use crate::{
    Engine,
    column::{Column, Values},
    error::RelationalResult,
    primitives::order::Order,
    sort_key::SortKey,
    types::DataType,
};

/// The most fields of one word: each is three arguments of the kernel.
const MOST_FIELDS: usize = 4;

/// How wide a value is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// The field has no value, only the bit on top.
    Nothing,
    Byte,
    Word,
    Long,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Byte => 1,
            Self::Word => 4,
            Self::Long => 8,
        }
    }
}

/// How a value's bits are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
}

impl Kind {
    fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::I32 | DataType::I64 | DataType::Date32 | DataType::Timestamp => Self::Signed,
            DataType::F32 | DataType::F64 => Self::Float,
            DataType::U32 | DataType::U64 | DataType::Bool | DataType::Utf8 => Self::Unsigned,
        }
    }
}

/// How a field is made of a value; `kernels/encode.cu` repeats what each bit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Description {
    width: Width,
    /// Whether values can be missing.
    nullable: bool,
    /// Whether values are codes, ordered by a table of ranks.
    ranked: bool,
    nulls_first: bool,
    kind: Kind,
    descending: bool,
    /// Whether a bit on top says if the value is missing.
    on_top: bool,
    /// Bits of the value.
    bits: u32,
}

impl Description {
    fn to_bits(self) -> u32 {
        self.width as u32
            | u32::from(self.nullable) << 2
            | u32::from(self.ranked) << 3
            | u32::from(self.nulls_first) << 4
            | (self.kind as u32) << 5
            | u32::from(self.descending) << 7
            | u32::from(self.on_top) << 8
            | self.bits << 16
    }

    fn of_bits(bits: u32) -> Self {
        Self {
            width: match bits & 3 {
                0 => Width::Nothing,
                1 => Width::Byte,
                2 => Width::Word,
                _ => Width::Long,
            },
            nullable: bits >> 2 & 1 == 1,
            ranked: bits >> 3 & 1 == 1,
            nulls_first: bits >> 4 & 1 == 1,
            kind: match bits >> 5 & 3 {
                0 => Kind::Unsigned,
                1 => Kind::Signed,
                _ => Kind::Float,
            },
            descending: bits >> 7 & 1 == 1,
            on_top: bits >> 8 & 1 == 1,
            bits: bits >> 16 & 0xff,
        }
    }

    /// Bits of the field, with the one on top.
    fn all_bits(&self) -> u32 {
        self.bits + u32::from(self.on_top)
    }

    /// The field of a value that is there, without the bit on top.
    #[inline(always)]
    fn ordered(&self, value: u64) -> u64 {
        if self.bits == 0 {
            return 0;
        }
        let (mask, sign) = (u64::MAX >> (64 - self.bits), 1 << (self.bits - 1));
        let value = match self.kind {
            Kind::Unsigned => value,
            Kind::Signed => value ^ sign,
            // A set sign inverts all bits, a cleared one only itself.
            Kind::Float => value ^ if value & sign != 0 { mask } else { sign },
        };
        if self.descending { value ^ mask } else { value }
    }

    /// The bit on top, in its place.
    #[inline(always)]
    fn top_bit(&self, there: bool) -> u64 {
        if self.on_top { u64::from(there == self.nulls_first) << self.bits } else { 0 }
    }
}

/// One field of a word: a column, and how it is encoded.
#[derive(Clone, Debug)]
struct Field<'t> {
    column: &'t Column,
    description: Description,
}

/// Fields that share a word, the first in its highest bits.
#[derive(Clone, Debug)]
pub(super) struct KeyWord<'t> {
    fields: Vec<Field<'t>>,
    bits: u32,
}

/// The words of a row, from the one that decides first to the last.
pub(super) fn key_words<'t>(columns: &[(&'t Column, &SortKey)]) -> Vec<KeyWord<'t>> {
    let mut words: Vec<KeyWord<'t>> = Vec::new();
    // From the last field up: a word takes what still fits it.
    for field in columns.iter().flat_map(|(column, key)| fields_of(column, key)).rev() {
        let bits = field.description.all_bits();
        match words.last_mut() {
            Some(word) if word.bits + bits <= 64 && word.fields.len() < MOST_FIELDS => {
                word.fields.insert(0, field);
                word.bits += bits;
            }
            _ => words.push(KeyWord { fields: vec![field], bits }),
        }
    }
    words.reverse();
    words
}

/// The fields of one key, the higher one first.
fn fields_of<'t>(column: &'t Column, key: &SortKey) -> Vec<Field<'t>> {
    let data_type = column.data_type();
    let (width, bits) = match (column.values(), column.dictionary()) {
        (_, Some(dictionary)) => {
            let last = dictionary.len().saturating_sub(1) as u64;
            (Width::Word, u64::BITS - last.leading_zeros())
        }
        (Values::Bytes(_), None) => (Width::Byte, 1),
        (Values::Words(_), None) => (Width::Word, 32),
        (Values::Longs(_), None) => (Width::Long, 64),
    };
    let value = Description {
        width,
        nullable: column.is_nullable(),
        ranked: data_type == DataType::Utf8,
        nulls_first: key.nulls_first,
        kind: Kind::of(data_type),
        descending: key.descending,
        on_top: column.is_nullable(),
        bits,
    };
    if value.all_bits() <= 64 {
        return vec![Field { column, description: value }];
    }
    // 65 bits: the one on top becomes a field of its own.
    let top = Description {
        width: Width::Nothing,
        ranked: false,
        kind: Kind::Unsigned,
        descending: false,
        bits: 0,
        ..value
    };
    let value = Description { on_top: false, ..value };
    vec![Field { column, description: top }, Field { column, description: value }]
}

/// Words in device memory.
pub(super) enum Encoded {
    Words(TrackedCudaSlice<u32>),
    Longs(TrackedCudaSlice<u64>),
}

impl<'t> KeyWord<'t> {
    /// Its one field, if that needs no encoding.
    pub(super) fn plain(&self) -> Option<PlainKey<'t>> {
        match &self.fields[..] {
            [field] => PlainKey::of(field.column, field.description.descending),
            _ => None,
        }
    }

    /// How many of its bits are in use: the low ones.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    /// Bytes of the word in memory.
    pub(super) fn bytes(&self) -> u64 {
        if self.bits <= 32 { 4 } else { 8 }
    }

    /// The word of every row, or of row `by[i]` at place `i`, which must number all rows.
    pub(super) fn encode(
        &self,
        engine: &Engine,
        rows: usize,
        by: Option<&TrackedCudaSlice<u32>>,
        stream: StreamId,
    ) -> RelationalResult<Encoded> {
        const TAG: &str = "sort keys";
        let tables = self.tables(engine, stream)?;
        let memory = Memory { word: self, tables: &tables, rows, by };
        Ok(if self.bits <= 32 {
            let out = engine.alloc(rows.max(1), stream, TAG)?;
            let mut launch = engine.launch(&kernels::ENCODE_32, stream)?;
            memory.inputs(&mut launch);
            launch.output(&out);
            memory.numbers(&mut launch);
            launch.launch(LaunchDims::for_elements(rows))?;
            Encoded::Words(out)
        } else {
            let out = engine.alloc(rows.max(1), stream, TAG)?;
            let mut launch = engine.launch(&kernels::ENCODE_64, stream)?;
            memory.inputs(&mut launch);
            launch.output(&out);
            memory.numbers(&mut launch);
            launch.launch(LaunchDims::for_elements(rows))?;
            Encoded::Longs(out)
        })
    }

    /// The ranks of each field's texts.
    fn tables(
        &self,
        engine: &Engine,
        stream: StreamId,
    ) -> RelationalResult<Vec<Option<TrackedCudaSlice<u32>>>> {
        let table = |field: &Field<'_>| -> RelationalResult<Option<TrackedCudaSlice<u32>>> {
            let dictionary = field.column.dictionary().filter(|_| field.description.ranked);
            // Nothing is looked up among no texts.
            let Some(dictionary) = dictionary.filter(|dictionary| !dictionary.is_empty()) else {
                return Ok(None);
            };
            let mut table = engine.alloc(dictionary.len(), stream, "ranks of text")?;
            table.upload_on(dictionary.ranks(), stream)?;
            Ok(Some(table))
        };
        self.fields.iter().map(table).collect()
    }
}

/// What a launch points to.
struct Memory<'m> {
    word: &'m KeyWord<'m>,
    tables: &'m [Option<TrackedCudaSlice<u32>>],
    rows: usize,
    by: Option<&'m TrackedCudaSlice<u32>>,
}

impl Memory<'_> {
    fn inputs(&self, launch: &mut LaunchBuilder<'_>) {
        let fields = &self.word.fields;
        // What a field does not use points to the first one's values, and is never read.
        let nothing = bytes(fields[0].column);
        let at = |index: usize| fields.get(index).map(|field| field.column);
        for index in 0..MOST_FIELDS {
            launch.input(&at(index).map_or(nothing, bytes));
        }
        for index in 0..MOST_FIELDS {
            let validity = at(index).and_then(Column::validity);
            launch.input(&validity.map_or(nothing, |words| words.as_view().as_bytes()));
        }
        for index in 0..MOST_FIELDS {
            let table = self.tables.get(index).and_then(Option::as_ref);
            launch.input(&table.map_or(nothing, |words| words.as_view().as_bytes()));
        }
        launch.input(&self.by.map_or(nothing, |rows| rows.as_view().as_bytes()));
    }

    fn numbers(&self, launch: &mut LaunchBuilder<'_>) {
        let fields = &self.word.fields;
        launch.value(self.rows as u64).value(u32::from(self.by.is_some()));
        launch.value(fields.len() as u32);
        for index in 0..MOST_FIELDS {
            launch.value(fields.get(index).map_or(0, |field| field.description.to_bits()));
        }
    }
}

fn bytes(column: &Column) -> ByteView<'_> {
    match column.values() {
        Values::Bytes(slice) => slice.as_view().as_bytes(),
        Values::Words(slice) => slice.as_view().as_bytes(),
        Values::Longs(slice) => slice.as_view().as_bytes(),
    }
}

/// A key whose memory can be sorted as it is: a number that is never missing.
pub(super) enum PlainKey<'t> {
    /// Of four bytes.
    Words(&'t TrackedCudaSlice<u32>, Order<u32>),
    /// Of eight bytes.
    Longs(&'t TrackedCudaSlice<u64>, Order<u64>),
}

impl<'t> PlainKey<'t> {
    /// The column, if it is one.
    pub(super) fn of(column: &'t Column, descending: bool) -> Option<Self> {
        if column.is_nullable() || column.data_type() == DataType::Utf8 {
            return None;
        }
        let kind = Kind::of(column.data_type());
        match column.values() {
            Values::Bytes(_) => None,
            Values::Words(memory) => Some(Self::Words(
                memory,
                match kind {
                    Kind::Unsigned => Order::of::<u32>(descending),
                    Kind::Signed => Order::of::<i32>(descending),
                    Kind::Float => Order::of::<f32>(descending),
                },
            )),
            Values::Longs(memory) => Some(Self::Longs(
                memory,
                match kind {
                    Kind::Unsigned => Order::of::<u64>(descending),
                    Kind::Signed => Order::of::<i64>(descending),
                    Kind::Float => Order::of::<f64>(descending),
                },
            )),
        }
    }
}
