//! What a value in a table can be, and how columns are named.
//!
//! A [`DataType`] says what a column's values mean; [`DataType::physical`] says how many bytes one
//! takes on the device and nothing more, since memory there is typed by width alone.

use std::fmt;

use crate::error::{RelationalError, RelationalResult};

/// The type of a column's values.
///
/// ```
/// use xlog_relational::{DataType, Physical};
///
/// assert_eq!(DataType::Timestamp.to_string(), "timestamp");
/// assert_eq!(DataType::Date32.physical(), Physical::Word);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// True or false.
    Bool,
    /// Days since 1 January 1970, signed, 32 bits.
    Date32,
    /// Microseconds since 1 January 1970, signed, 64 bits, without a time zone.
    Timestamp,
    /// Text.
    Utf8,
}

/// How wide a value is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Physical {
    /// One byte.
    Byte,
    /// Four bytes.
    Word,
    /// Eight bytes.
    Long,
}

impl Physical {
    /// Bytes one value takes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Word => 4,
            Self::Long => 8,
        }
    }
}

impl DataType {
    /// Every type, in declaration order.
    pub const ALL: [Self; 10] = [
        Self::U32,
        Self::U64,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Date32,
        Self::Timestamp,
        Self::Utf8,
    ];

    /// The name used in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Date32 => "date",
            Self::Timestamp => "timestamp",
            Self::Utf8 => "utf8",
        }
    }

    /// How wide a value is on the device; text is a code there.
    #[must_use]
    pub const fn physical(self) -> Physical {
        match self {
            Self::Bool => Physical::Byte,
            Self::U32 | Self::I32 | Self::F32 | Self::Date32 | Self::Utf8 => Physical::Word,
            Self::U64 | Self::I64 | Self::F64 | Self::Timestamp => Physical::Long,
        }
    }

    /// Bytes one value takes on the device.
    #[must_use]
    pub const fn size(self) -> usize {
        self.physical().size()
    }

    /// Whether it is a signed or an unsigned integer. Dates and timestamps are not.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::U32 | Self::U64 | Self::I32 | Self::I64)
    }

    /// Whether it is an unsigned integer.
    #[must_use]
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::U32 | Self::U64)
    }

    /// Whether it is a floating-point number.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Whether one can calculate with it.
    #[must_use]
    pub const fn is_number(self) -> bool {
        self.is_integer() || self.is_float()
    }

    /// The type of a sum of such values: wide enough that no input type overflows it row by row.
    /// `None` where there is nothing to add.
    #[must_use]
    pub const fn sum_type(self) -> Option<Self> {
        match self {
            Self::U32 | Self::U64 => Some(Self::U64),
            Self::I32 | Self::I64 => Some(Self::I64),
            Self::F32 | Self::F64 => Some(Self::F64),
            _ => None,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One column: its name, its type, and whether values may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The column's name.
    pub name: String,
    /// The type of its values.
    pub data_type: DataType,
    /// Whether values may be missing.
    pub nullable: bool,
}

impl Field {
    /// A column whose every row has a value.
    #[must_use]
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self { name: name.into(), data_type, nullable: false }
    }

    /// The same column, with values allowed to be missing.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.name, self.data_type, if self.nullable { "?" } else { "" })
    }
}

/// The columns of a table, in order, each name once.
///
/// ```
/// use xlog_relational::{DataType, Field, Schema};
///
/// let schema = Schema::new(vec![
///     Field::new("id", DataType::U64),
///     Field::new("amount", DataType::F64).nullable(),
/// ])?;
/// assert_eq!(schema.index_of("amount")?, 1);
/// assert_eq!(schema.to_string(), "id: u64, amount: f64?");
/// let error = schema.index_of("amonut").unwrap_err().to_string();
/// assert!(error.contains("did you mean \"amount\""), "{error}");
/// # Ok::<(), xlog_relational::RelationalError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Schema {
    fields: Vec<Field>,
}

impl Schema {
    /// A schema of these columns. A name that stands twice is refused.
    pub fn new(fields: Vec<Field>) -> RelationalResult<Self> {
        for (index, field) in fields.iter().enumerate() {
            if fields[..index].iter().any(|earlier| earlier.name == field.name) {
                return Err(RelationalError::DuplicateColumn { name: field.name.clone() });
            }
        }
        Ok(Self { fields })
    }

    /// The columns, in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// How many columns there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Where the column called `name` stands.
    pub fn index_of(&self, name: &str) -> RelationalResult<usize> {
        self.fields.iter().position(|field| field.name == name).ok_or_else(|| {
            RelationalError::unknown_column(name, self.fields.iter().map(|f| f.name.as_str()))
        })
    }

    /// The column called `name`.
    pub fn field(&self, name: &str) -> RelationalResult<&Field> {
        Ok(&self.fields[self.index_of(name)?])
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            write!(f, "{}{field}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_refuses_a_name_that_stands_twice() {
        let field = |name: &str| Field::new(name, DataType::U32);
        let error = Schema::new(vec![field("a"), field("b"), field("a")]).unwrap_err();
        assert!(error.to_string().contains("\"a\""), "{error}");
        assert!(Schema::new(vec![field("a"), field("b")]).is_ok());
    }

    #[test]
    fn every_type_knows_its_width() {
        for data_type in DataType::ALL {
            assert_eq!(data_type.size(), data_type.physical().size(), "{data_type}");
            assert_eq!(data_type.is_number(), data_type.sum_type().is_some(), "{data_type}");
        }
    }
}
