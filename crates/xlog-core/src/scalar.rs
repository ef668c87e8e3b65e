//! The types a value on a device can have.

use std::fmt;

/// The type of one value in device memory.
///
/// ```
/// use xlog_core::ScalarType;
///
/// assert_eq!(ScalarType::F64.size(), 8);
/// assert_eq!("u32".parse(), Ok(ScalarType::U32));
/// assert_eq!(ScalarType::I64.to_string(), "i64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScalarType {
    /// Unsigned, 8 bits; also the type of raw bytes.
    U8,
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
    /// True or false, one byte each, 0 or 1.
    Bool,
}

impl ScalarType {
    /// Every scalar type, in declaration order.
    pub const ALL: [Self; 8] =
        [Self::U8, Self::U32, Self::U64, Self::I32, Self::I64, Self::F32, Self::F64, Self::Bool];

    /// Bytes one value takes in device memory.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::Bool => 1,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name used in files, messages and kernels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for ScalarType {
    type Err = crate::SchemaError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|scalar| scalar.name() == name)
            .ok_or_else(|| crate::SchemaError::UnknownType { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::ScalarType;

    #[test]
    fn names_round_trip_and_strangers_are_refused_with_the_choices() {
        for scalar in ScalarType::ALL {
            assert_eq!(scalar.name().parse(), Ok(scalar));
        }
        let error = "u16".parse::<ScalarType>().expect_err("u16 is not a type here");
        assert!(error.to_string().contains("u16") && error.to_string().contains("u32"), "{error}");
    }
}
