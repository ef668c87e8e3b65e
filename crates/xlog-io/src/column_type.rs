//! The types a column may have.

use std::{fmt, str::FromStr};

use arrow_schema::{DataType, TimeUnit};

/// The type of a column, as a user writes it.
///
/// ```
/// use xlog_io::ColumnType;
///
/// assert_eq!("i64".parse(), Ok(ColumnType::I64));
/// assert_eq!(ColumnType::Utf8.to_string(), "utf8");
/// assert!("int".parse::<ColumnType>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `true` or `false`.
    Bool,
    /// Integers of 32 bits without a sign.
    U32,
    /// Integers of 64 bits without a sign.
    U64,
    /// Integers of 32 bits.
    I32,
    /// Integers of 64 bits.
    I64,
    /// Floating point numbers of 32 bits.
    F32,
    /// Floating point numbers of 64 bits.
    F64,
    /// Days.
    Date,
    /// Microseconds, without a time zone.
    Timestamp,
    /// Text.
    Utf8,
}

impl ColumnType {
    /// Every type.
    pub const ALL: [Self; 10] = [
        Self::Bool,
        Self::U32,
        Self::U64,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Date,
        Self::Timestamp,
        Self::Utf8,
    ];

    /// Its name, which parses as it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Utf8 => "utf8",
        }
    }

    /// Arrow's type for it; text is `Utf8`.
    #[must_use]
    pub fn to_arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::I32 => DataType::Int32,
            Self::I64 => DataType::Int64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Utf8 => DataType::Utf8,
        }
    }

    /// The type of an Arrow array, where it is one of these; text may have any of Arrow's layouts.
    #[must_use]
    pub fn of_arrow(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::LargeUtf8 | DataType::Utf8View => Some(Self::Utf8),
            DataType::Dictionary(_, values) => {
                Self::of_arrow(values).filter(|values| *values == Self::Utf8)
            }
            other => Self::ALL.into_iter().find(|known| known.to_arrow() == *other),
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ColumnType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|known| known.name()).collect();
            format!("{text:?} is no type; the types are {}", names.join(", "))
        })
    }
}
