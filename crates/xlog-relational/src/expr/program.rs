//! Expressions as the interpreter sees them: a stack machine's instructions in 64-bit words.
//!
//! An instruction is one word: its opcode in bits 0 to 7, a kind in bits 8 to 15, an argument in
//! bits 32 to 63; some are followed by words of their own. Every entry of the stack is 64 bits and
//! whether they are there; what the bits mean ([`Kind`]) is known when the program is made, so the
//! interpreter never looks at types of data. `kernels/expression.cu` repeats these numbers.

use std::sync::Arc;

use super::{Comparison, Operator, range::RangeTest};
use crate::{
    column::{Column, Dictionary},
    error::{RelationalError, RelationalResult},
    table::Table,
    types::DataType,
};

/// The most columns and tables that one program can use: each is two arguments of the kernel.
pub(crate) const MOST_SLOTS: usize = 8;
/// The deepest stack there is.
pub(crate) const MOST_DEPTH: usize = 16;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    /// Pushes a row of the slot in the argument; the kind is a [`Load`].
    Load = 0,
    /// Pushes the next word.
    Constant = 1,
    /// Pushes a missing value.
    Null = 2,
    /// Replaces an integer of the kind by the nearest `f64`.
    ToFloat = 3,
    /// Replaces a `u64` by the same `i64`; one that is none overflows.
    ToSigned = 4,
    /// Pops right, then left; pushes whether the comparison in the argument holds.
    Compare = 5,
    /// Pops two, pushes one.
    And = 6,
    /// Pops two, pushes one.
    Or = 7,
    /// Replaces a truth value by the other.
    Not = 8,
    /// Replaces a value by whether it is missing.
    IsNull = 9,
    /// Replaces a value by whether it is among the next words, in rising order: as many as the
    /// argument says. Kind 1 if a missing value is among them too; bit 1 of the kind is set for
    /// floating-point numbers.
    In = 10,
    /// Pops right, then left; pushes the sum in the kind.
    Add = 11,
    /// The difference; of two `u64` it is an `i64`.
    Subtract = 12,
    /// The product.
    Multiply = 13,
    /// The quotient; missing for an integer divided by zero.
    Divide = 14,
    /// The remainder; the same.
    Remainder = 15,
    /// Replaces a number by itself with the other sign, a `u64` by an `i64`.
    Negate = 16,
    /// Rounds an `f64` to the nearest `f32`.
    RoundToF32 = 17,
    /// Replaces a code by its entry in the table in the argument, whose length is the next word.
    Lookup = 18,
}

/// What the bits of a stack entry mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Unsigned; truth values, codes and ranks too.
    U64 = 0,
    /// Signed; dates and timestamps too.
    I64 = 1,
    /// Floating point, 32-bit ones too.
    F64 = 2,
    /// For comparisons: signed on the left, unsigned on the right.
    Mixed = 3,
}

impl Kind {
    pub(crate) fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::F32 | DataType::F64 => Self::F64,
            DataType::I32 | DataType::I64 | DataType::Date32 | DataType::Timestamp => Self::I64,
            DataType::U32 | DataType::U64 | DataType::Bool | DataType::Utf8 => Self::U64,
        }
    }
}

/// How a value gets from memory to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Load {
    /// One byte.
    Byte = 0,
    /// Four bytes, unsigned.
    Word = 1,
    /// Four bytes, signed.
    SignedWord = 2,
    /// Four bytes, floating point.
    FloatWord = 3,
    /// Eight bytes.
    Long = 4,
}

impl Load {
    pub(crate) fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::Bool => Self::Byte,
            DataType::U32 | DataType::Utf8 => Self::Word,
            DataType::I32 | DataType::Date32 => Self::SignedWord,
            DataType::F32 => Self::FloatWord,
            _ => Self::Long,
        }
    }
}

/// Where a slot's memory comes from.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// A column, by its place in the table, and what it must be there.
    Column {
        index: usize,
        data_type: DataType,
        nullable: bool,
        dictionary: Option<Arc<Dictionary>>,
    },
    /// Words that are uploaded with the program.
    Table(Vec<u32>),
}

impl Slot {
    /// The slot of a column at a place.
    pub(crate) fn of(index: usize, column: &Column) -> Self {
        let (data_type, nullable) = (column.data_type(), column.is_nullable());
        Self::Column { index, data_type, nullable, dictionary: column.dictionary().cloned() }
    }

    /// Whether both stand for the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Column { index: a, .. }, Self::Column { index: b, .. }) => a == b,
            (Self::Table(a), Self::Table(b)) => a == b,
            _ => false,
        }
    }

    /// The column of a table that the slot stands for, if it is what the program was compiled for.
    pub(crate) fn column_of<'t>(&self, table: &'t Table) -> RelationalResult<&'t Column> {
        let found = match self {
            Self::Column { index, .. } => table.columns().nth(*index).map(|(_, column)| column),
            Self::Table(_) => None,
        };
        found.filter(|column| self.fits(column)).ok_or_else(|| {
            RelationalError::UnsupportedExpression {
                expression: format!("a program over {table:?}"),
                reason: "it was compiled for another table; compile it for this one".to_owned(),
            }
        })
    }

    fn fits(&self, column: &Column) -> bool {
        let Self::Column { data_type, nullable, dictionary, .. } = self else { return false };
        let same_strings = match (dictionary, column.dictionary()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        same_strings && (*data_type, *nullable) == (column.data_type(), column.is_nullable())
    }
}

/// A compiled expression. It holds for the table it was compiled for, and for any other with the
/// same types and dictionaries at the same places.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) words: Vec<u64>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) data_type: DataType,
    pub(crate) nullable: bool,
    /// What the codes of a result of text stand for.
    pub(crate) dictionary: Option<Arc<Dictionary>>,
    pub(crate) can_overflow: bool,
    /// What the program asks, if it is no more than ranges of columns; else empty.
    pub(crate) ranges: Vec<RangeTest>,
}

impl Program {
    /// The type of its results.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Whether it can overflow: if not, nobody needs to ask whether it did.
    #[must_use]
    pub fn can_overflow(&self) -> bool {
        self.can_overflow
    }
}

/// One instruction's word.
pub(crate) const fn instruction(opcode: Opcode, kind: u8, argument: u32) -> u64 {
    opcode as u64 | (kind as u64) << 8 | (argument as u64) << 32
}

/// The argument of a comparison.
pub(crate) const fn comparison_argument(comparison: Comparison) -> u32 {
    match comparison {
        Comparison::Equal => 0,
        Comparison::NotEqual => 1,
        Comparison::Less => 2,
        Comparison::LessOrEqual => 3,
        Comparison::Greater => 4,
        Comparison::GreaterOrEqual => 5,
    }
}

impl From<Operator> for Opcode {
    fn from(operator: Operator) -> Self {
        match operator {
            Operator::Add => Self::Add,
            Operator::Subtract => Self::Subtract,
            Operator::Multiply => Self::Multiply,
            Operator::Divide => Self::Divide,
            Operator::Remainder => Self::Remainder,
        }
    }
}

/// The names of the operations in a word of overflow flags: bit `i` is opcode `i`'s.
pub(crate) fn overflow_names(flags: u32) -> String {
    let names = [
        (Opcode::ToSigned, "u64 to i64"),
        (Opcode::Add, "+"),
        (Opcode::Subtract, "-"),
        (Opcode::Multiply, "*"),
        (Opcode::Divide, "/"),
        (Opcode::Negate, "the change of sign"),
    ];
    let set = names.iter().filter(|(opcode, _)| flags >> *opcode as u8 & 1 == 1);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}
