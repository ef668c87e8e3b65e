//! The kernels that encode, for words of either width.

use std::marker::PhantomData;

use xlog_core::ScalarType::{U8, U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, Input, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::{Description, MOST_FIELDS, Width};
use crate::primitives::order::Bits;

static MODULE: KernelModule =
    KernelModule { name: "encode", ptx: include_str!("../../../kernels/encode.ptx") };

/// Places of the parameters.
const VALUES: usize = 0;
const VALIDITIES: usize = VALUES + MOST_FIELDS;
const TABLES: usize = VALIDITIES + MOST_FIELDS;
const ROWS: usize = TABLES + MOST_FIELDS;
const OUT: usize = ROWS + 1;
const COUNT: usize = OUT + 1;
const BY_ROWS: usize = COUNT + 1;
const FIELD_COUNT: usize = BY_ROWS + 1;
const DESCRIPTIONS: usize = FIELD_COUNT + 1;

macro_rules! encode {
    ($name:ident, $entry:literal, $scalar:expr, $word:ty) => {
        /// `out[i]` = the fields of row `i`, or of row `rows[i]`.
        pub(super) static $name: KernelDefinition = KernelDefinition {
            name: $entry,
            module: &MODULE,
            parameters: &[
                Parameter::input("values0", U8),
                Parameter::input("values1", U8),
                Parameter::input("values2", U8),
                Parameter::input("values3", U8),
                Parameter::input("validity0", U8),
                Parameter::input("validity1", U8),
                Parameter::input("validity2", U8),
                Parameter::input("validity3", U8),
                Parameter::input("table0", U8),
                Parameter::input("table1", U8),
                Parameter::input("table2", U8),
                Parameter::input("table3", U8),
                Parameter::input("rows", U8),
                Parameter::output("out", $scalar).counted_by(14),
                Parameter::value("count", U64),
                Parameter::value("by_rows", U32),
                Parameter::value("field_count", U32),
                Parameter::value("description0", U32),
                Parameter::value("description1", U32),
                Parameter::value("description2", U32),
                Parameter::value("description3", U32),
            ],
            host: HostKernel::of::<Encode<$word>>(),
        };
    };
}

encode!(ENCODE_32, "xlog_encode_32", U32, u32);
encode!(ENCODE_64, "xlog_encode_64", U64, u64);

/// Rows encoded at a time: their words stay in the fastest cache from field to field.
const PIECE: usize = 1024;

/// A word that fields are packed into.
pub(super) trait Word: Bits {
    /// The low bits of `bits`.
    fn of(bits: u64) -> Self;
}

impl Word for u32 {
    fn of(bits: u64) -> Self {
        bits as Self
    }
}

impl Word for u64 {
    fn of(bits: u64) -> Self {
        bits
    }
}

struct Encode<W>(PhantomData<W>);

impl<W: Word> KernelBody for Encode<W> {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let count = usize::try_from(call.value::<u64>(COUNT)?)
            .map_err(|_| KernelFault("more rows than this machine can count".to_owned()))?;
        let out = call.output::<W>(OUT, count)?;
        let fields = (0..(call.value::<u32>(FIELD_COUNT)? as usize).min(MOST_FIELDS))
            .map(|field| Field::of(call, field, count))
            .collect::<Result<Vec<_>, _>>()?;
        let by_rows = call.value::<u32>(BY_ROWS)? != 0;
        let rows = call.input::<u8>(ROWS, if by_rows { 4 * count } else { 0 })?;
        call.in_parts(count, call.threads_for(count), PIECE, |_, range| {
            let (mut piece_rows, mut words) = (vec![0u32; PIECE], vec![0u64; PIECE]);
            let mut packed = [W::default(); PIECE];
            for start in range.clone().step_by(PIECE) {
                let len = (range.end - start).min(PIECE);
                let (piece_rows, words) = (&mut piece_rows[..len], &mut words[..len]);
                if by_rows {
                    rows.read_into(4 * start, bytemuck::cast_slice_mut(piece_rows));
                } else {
                    let numbers = piece_rows.iter_mut().zip(start..);
                    numbers.for_each(|(number, row)| *number = row as u32);
                }
                words.fill(0);
                fields.iter().for_each(|field| field.append(piece_rows, words));
                let packed = &mut packed[..len];
                packed.iter_mut().zip(words).for_each(|(to, word)| *to = W::of(*word));
                out.write_from(start, packed);
            }
        });
        Ok(())
    }
}

/// One field as the kernel sees it.
struct Field<'c, M> {
    description: Description,
    values: Input<'c, u8, M>,
    validity: Input<'c, u8, M>,
    table: Input<'c, u8, M>,
}

impl<'c, M: MemoryPolicy> Field<'c, M> {
    fn of(call: &'c KernelCall<'_, M>, field: usize, rows: usize) -> Result<Self, KernelFault> {
        let description = Description::of_bits(call.value(DESCRIPTIONS + field)?);
        let words = if description.nullable { rows.div_ceil(32) } else { 0 };
        // As many ranks as its bits can tell apart, or fewer.
        let ranks = if description.ranked { 1usize << description.bits.min(32) } else { 0 };
        Ok(Self {
            values: call.input(VALUES + field, rows * description.width.bytes())?,
            validity: call.input(VALIDITIES + field, 4 * words)?,
            table: call.input(TABLES + field, 4 * ranks)?,
            description,
        })
    }

    /// Appends the field's bits of each row to the row's word.
    fn append(&self, rows: &[u32], words: &mut [u64]) {
        let values = &self.values;
        match self.description.width {
            Width::Nothing => self.append_from(rows, words, |_| 0),
            Width::Byte => self.append_from(rows, words, |row| u64::from(values.get(row))),
            Width::Word => self.append_from(rows, words, |row| u64::from(word(values, row))),
            Width::Long => self.append_from(rows, words, |row| {
                let mut bytes = [0; 8];
                values.read_into(8 * row, &mut bytes);
                u64::from_ne_bytes(bytes)
            }),
        }
    }

    #[inline(always)]
    fn append_from(&self, rows: &[u32], words: &mut [u64], value_of: impl Fn(usize) -> u64) {
        let description = &self.description;
        let shift = description.all_bits();
        for (to, row) in words.iter_mut().zip(rows) {
            let row = *row as usize;
            let there =
                !description.nullable || word(&self.validity, row / 32) >> (row % 32) & 1 == 1;
            let bits = match there {
                false => 0,
                true if description.ranked => {
                    description.ordered(u64::from(word(&self.table, value_of(row) as usize)))
                }
                true => description.ordered(value_of(row)),
            };
            // A field of 64 bits stands alone.
            let above = if shift < 64 { *to << shift } else { 0 };
            *to = above | bits | description.top_bit(there);
        }
    }
}

/// Four bytes of memory that is typed as bytes.
#[inline(always)]
fn word<M: MemoryPolicy>(memory: &Input<'_, u8, M>, index: usize) -> u32 {
    let mut bytes = [0; 4];
    memory.read_into(4 * index, &mut bytes);
    u32::from_ne_bytes(bytes)
}
