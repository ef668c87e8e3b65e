//! Names and types of the columns of a table.

use std::fmt;

use crate::ScalarType;

/// One column: its name, its type, and whether values may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    name: String,
    scalar: ScalarType,
    nullable: bool,
}

impl Field {
    /// A column whose every row has a value.
    #[must_use]
    pub fn new(name: impl Into<String>, scalar: ScalarType) -> Self {
        Self { name: name.into(), scalar, nullable: false }
    }

    /// The same column, with values allowed to be missing.
    #[must_use]
    pub fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// The column's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its values.
    #[must_use]
    pub const fn scalar(&self) -> ScalarType {
        self.scalar
    }

    /// Whether values may be missing.
    #[must_use]
    pub const fn is_nullable(&self) -> bool {
        self.nullable
    }
}

/// The columns of a table, in order, each name once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Schema {
    fields: Vec<Field>,
}

impl Schema {
    /// A schema of these columns. A name that is empty or stands twice is refused.
    pub fn new(fields: Vec<Field>) -> Result<Self, SchemaError> {
        for (index, field) in fields.iter().enumerate() {
            if field.name.is_empty() {
                return Err(SchemaError::EmptyName { index });
            }
            if fields[..index].iter().any(|earlier| earlier.name == field.name) {
                return Err(SchemaError::DuplicateColumn { name: field.name.clone() });
            }
        }
        Ok(Self { fields })
    }

    /// The columns, in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Where the column called `name` stands.
    pub fn index_of(&self, name: &str) -> Result<usize, SchemaError> {
        self.fields.iter().position(|field| field.name == name).ok_or_else(|| {
            SchemaError::UnknownColumn {
                name: name.to_owned(),
                known: self.fields.iter().map(|field| field.name.clone()).collect(),
            }
        })
    }
}

/// What is wrong with a schema, or with a name looked up in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// A column has no name.
    EmptyName {
        /// Where it stands, from 0.
        index: usize,
    },
    /// Two columns share a name.
    DuplicateColumn {
        /// The name that stands twice.
        name: String,
    },
    /// No column has that name.
    UnknownColumn {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// No scalar type has that name.
    UnknownType {
        /// The name asked for.
        name: String,
    },
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName { index } => {
                write!(f, "column {index} has no name; give every column one")
            }
            Self::DuplicateColumn { name } => {
                write!(f, "two columns are called {name:?}; rename one")
            }
            Self::UnknownColumn { name, known } => {
                write!(f, "no column is called {name:?}; there are: {}", known.join(", "))
            }
            Self::UnknownType { name } => {
                let known: Vec<_> = ScalarType::ALL.iter().map(|scalar| scalar.name()).collect();
                write!(f, "no type is called {name:?}; there are: {}", known.join(", "))
            }
        }
    }
}

impl std::error::Error for SchemaError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_schemas_are_refused_by_name() {
        let field = |name: &str| Field::new(name, ScalarType::U32);
        assert_eq!(
            Schema::new(vec![field("a"), field("a")]),
            Err(SchemaError::DuplicateColumn { name: "a".into() })
        );
        assert_eq!(
            Schema::new(vec![field("a"), field("")]),
            Err(SchemaError::EmptyName { index: 1 })
        );
        let schema = Schema::new(vec![field("a"), field("b")]).expect("two names");
        let error = schema.index_of("c").expect_err("c is not there").to_string();
        assert!(error.contains("\"c\"") && error.contains("a, b"), "{error}");
    }
}
