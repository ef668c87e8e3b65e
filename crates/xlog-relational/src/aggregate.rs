//! What a group is summed up by.

use std::fmt;

use crate::{
    error::{RelationalError, RelationalResult},
    types::{DataType, Field, Schema},
};

/// One figure for each group.
///
/// Missing values are left out of every figure but [`AggregateFunction::CountRows`]. Where a group
/// has no value at all, counts are 0 and everything else is missing.
///
/// ```
/// use xlog_relational::Aggregate;
///
/// let total = Aggregate::sum("amount").named("total");
/// assert_eq!(total.to_string(), "sum(amount) as total");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Aggregate {
    /// What is worked out.
    pub function: AggregateFunction,
    /// Of which column; [`AggregateFunction::CountRows`] has none.
    pub column: Option<String>,
    /// What the result's column is called.
    pub name: String,
}

/// What is worked out of the values of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AggregateFunction {
    /// How many rows there are, missing values or not; `u64`.
    CountRows,
    /// How many values are there; `u64`.
    Count,
    /// Their sum, in `u64`, `i64` or `f64`. One that does not fit is an error. Floating-point
    /// numbers are added in an order that is not said.
    Sum,
    /// The smallest one, in the order of sorting.
    Min,
    /// The largest one, in the order of sorting.
    Max,
    /// Their mean, `f64`.
    Mean,
    /// How many different ones there are, −0.0 and 0.0 being the same, and so all NaN; `u64`.
    CountDistinct,
}

impl AggregateFunction {
    /// Every function, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::CountRows,
        Self::Count,
        Self::Sum,
        Self::Min,
        Self::Max,
        Self::Mean,
        Self::CountDistinct,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CountRows => "count_rows",
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::CountDistinct => "count_distinct",
        }
    }
}

impl Aggregate {
    /// `function` of `column`, called after both.
    #[must_use]
    pub fn of(function: AggregateFunction, column: impl Into<String>) -> Self {
        let column = column.into();
        let name = format!("{}_{column}", function.name());
        Self { function, column: Some(column), name }
    }

    /// How many rows there are.
    #[must_use]
    pub fn count_rows() -> Self {
        let function = AggregateFunction::CountRows;
        Self { function, column: None, name: function.name().to_owned() }
    }

    /// How many values are there.
    #[must_use]
    pub fn count(column: impl Into<String>) -> Self {
        Self::of(AggregateFunction::Count, column)
    }

    /// The sum of the values.
    #[must_use]
    pub fn sum(column: impl Into<String>) -> Self {
        Self::of(AggregateFunction::Sum, column)
    }

    /// The smallest value.
    #[must_use]
    pub fn min(column: impl Into<String>) -> Self {
        Self::of(AggregateFunction::Min, column)
    }

    /// The largest value.
    #[must_use]
    pub fn max(column: impl Into<String>) -> Self {
        Self::of(AggregateFunction::Max, column)
    }

    /// The mean of the values.
    #[must_use]
    pub fn mean(column: impl Into<String>) -> Self {
        Self::of(AggregateFunction::Mean, column)
    }

    /// How many different values there are.
    #[must_use]
    pub fn count_distinct(column: impl Into<String>) -> Self {
        Self::of(AggregateFunction::CountDistinct, column)
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The column it makes of a table. One it cannot be worked out of is refused by name.
    pub fn field(&self, schema: &Schema) -> RelationalResult<Field> {
        use AggregateFunction as F;
        let column = self.column.as_deref().map(|name| schema.field(name)).transpose()?;
        let (data_type, nullable) = match (self.function, column) {
            (F::CountRows, _) => (DataType::U64, false),
            (F::Count | F::CountDistinct, Some(_)) => (DataType::U64, false),
            (F::Min | F::Max, Some(field)) => (field.data_type, true),
            (F::Sum | F::Mean, Some(field)) => {
                let Some(sum) = field.data_type.sum_type() else {
                    let column = format!("column {:?} in {}", field.name, self.function.name());
                    return Err(RelationalError::type_mismatch(
                        column,
                        "a number",
                        field.data_type,
                    ));
                };
                (if self.function == F::Mean { DataType::F64 } else { sum }, true)
            }
            (function, None) => {
                return Err(RelationalError::UnsupportedExpression {
                    expression: self.to_string(),
                    reason: format!("{} needs a column; name one", function.name()),
                });
            }
        };
        Ok(Field { name: self.name.clone(), data_type, nullable })
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.column.as_deref().unwrap_or("");
        write!(f, "{}({column}) as {}", self.function.name(), self.name)
    }
}
