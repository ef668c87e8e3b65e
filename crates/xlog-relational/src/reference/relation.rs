//! A table on the host, row by row.

use std::{cmp::Ordering, fmt};

use crate::{
    error::{RelationalError, RelationalResult},
    scalar::{KeyIdentity, Scalar},
    types::{Field, Schema},
};

/// One column on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostColumn {
    /// Its name and type.
    pub field: Field,
    /// Its values; `None` where one is missing.
    pub values: Vec<Option<Scalar>>,
}

impl HostColumn {
    /// A column whose field is nullable if a value is missing.
    #[must_use]
    pub fn new(field: Field, values: Vec<Option<Scalar>>) -> Self {
        let nullable = field.nullable || values.iter().any(Option::is_none);
        Self { field: Field { nullable, ..field }, values }
    }
}

/// A table on the host.
#[derive(Clone, PartialEq)]
pub struct Relation {
    columns: Vec<HostColumn>,
    rows: usize,
}

impl Relation {
    /// A table of these columns: equally long, each name once, each value of its column's type.
    pub fn new(columns: Vec<HostColumn>) -> RelationalResult<Self> {
        let rows = columns.first().map_or(0, |column| column.values.len());
        Schema::new(columns.iter().map(|column| column.field.clone()).collect())?;
        for HostColumn { field, values } in &columns {
            if values.len() != rows {
                return Err(RelationalError::LengthMismatch {
                    column: field.name.clone(),
                    expected: rows as u64,
                    found: values.len() as u64,
                });
            }
            for value in values.iter().flatten() {
                if value.data_type() != field.data_type {
                    let name = format!("a value of column {:?}", field.name);
                    let (expected, found) = (field.data_type, value.data_type());
                    return Err(RelationalError::type_mismatch(name, expected, found));
                }
            }
        }
        Ok(Self { columns, rows })
    }

    /// Its columns.
    #[must_use]
    pub fn columns(&self) -> &[HostColumn] {
        &self.columns
    }

    /// Names and types.
    #[must_use]
    pub fn schema(&self) -> Schema {
        let fields = self.columns.iter().map(|column| column.field.clone());
        Schema::new(fields.collect()).unwrap_or_default()
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> RelationalResult<&HostColumn> {
        let index = self.schema().index_of(name)?;
        Ok(&self.columns[index])
    }

    /// Several columns.
    pub(super) fn named(&self, names: &[&str]) -> RelationalResult<Vec<&HostColumn>> {
        names.iter().map(|name| self.column(name)).collect()
    }

    /// The values of one row.
    #[must_use]
    pub fn row(&self, row: usize) -> Vec<Option<Scalar>> {
        self.columns.iter().map(|column| column.values[row].clone()).collect()
    }

    /// The rows with these numbers, in that order.
    #[must_use]
    pub fn take(&self, rows: &[usize]) -> Self {
        let columns = self.columns.iter().map(|column| HostColumn {
            field: column.field.clone(),
            values: rows.iter().map(|row| column.values[*row].clone()).collect(),
        });
        Self { columns: columns.collect(), rows: rows.len() }
    }

    /// What tells a row from others: missing values are equal here.
    #[must_use]
    pub fn row_identity(&self, row: usize) -> Vec<Option<KeyIdentity>> {
        identity(&self.columns.iter().collect::<Vec<_>>(), row)
    }

    /// Whether both have the same rows, each as often, in whatever order, under the same names and
    /// types. Zeros of either sign are one value here, and so are all NaN.
    #[must_use]
    pub fn same_rows(&self, other: &Self) -> bool {
        let names = |relation: &Self| -> Vec<_> {
            let fields = relation.columns.iter().map(|column| &column.field);
            fields.map(|field| (field.name.clone(), field.data_type)).collect()
        };
        let bag = |relation: &Self| -> Vec<_> {
            let mut rows: Vec<_> = (0..relation.rows).map(|r| relation.row_identity(r)).collect();
            rows.sort();
            rows
        };
        names(self) == names(other) && bag(self) == bag(other)
    }

    /// Whether both are the same bit by bit, row by row: what a stable sort promises.
    #[must_use]
    pub fn same_in_order(&self, other: &Self) -> bool {
        let same = |a: &Option<Scalar>, b: &Option<Scalar>| match (a, b) {
            (Some(a), Some(b)) => a.sort_order(b) == Some(Ordering::Equal),
            (a, b) => a.is_none() && b.is_none(),
        };
        self.columns.len() == other.columns.len()
            && self.columns.iter().zip(&other.columns).all(|(a, b)| {
                (&a.field.name, a.field.data_type) == (&b.field.name, b.field.data_type)
                    && a.values.len() == b.values.len()
                    && a.values.iter().zip(&b.values).all(|(a, b)| same(a, b))
            })
    }
}

/// What tells one row of some columns from others.
pub(super) fn identity(columns: &[&HostColumn], row: usize) -> Vec<Option<KeyIdentity>> {
    columns.iter().map(|c| c.values[row].as_ref().map(Scalar::key_identity)).collect()
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} rows)", self.schema(), self.rows)?;
        for row in 0..self.rows {
            for value in self.row(row) {
                match value {
                    Some(value) => write!(f, "{value}\t")?,
                    None => write!(f, "-\t")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
