//! Named columns of one length.

use std::fmt;

use crate::{
    Engine,
    column::Column,
    error::{RelationalError, RelationalResult},
    types::{Field, Schema},
};

/// Columns that stand side by side: same length, same engine, each name once. Cheap to clone; it
/// never changes.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, RelationalError, Table};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let id = Column::from_slice(&engine, &[1u32, 2], StreamId::DEFAULT)?;
/// let name = Column::from_strings(&engine, [Some("ada"), None], StreamId::DEFAULT)?;
/// let table = Table::new(&engine, [("id", id), ("name", name)])?;
/// assert_eq!(table.schema().to_string(), "id: u32, name: utf8?");
/// assert_eq!(table.select(&["name"])?.width(), 1);
/// assert!(table.column("nmae").unwrap_err().to_string().contains("did you mean \"name\""));
/// # Ok::<(), RelationalError>(())
/// ```
#[derive(Clone)]
pub struct Table {
    engine: Engine,
    rows: usize,
    columns: Vec<(String, Column)>,
}

impl Table {
    /// A table of these columns. One without columns has no rows.
    pub fn new(
        engine: &Engine,
        columns: impl IntoIterator<Item = (impl Into<String>, Column)>,
    ) -> RelationalResult<Self> {
        let columns: Vec<(String, Column)> =
            columns.into_iter().map(|(name, column)| (name.into(), column)).collect();
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        for (index, (name, column)) in columns.iter().enumerate() {
            if columns[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(RelationalError::DuplicateColumn { name: name.clone() });
            }
            if !column.engine().is_same(engine) {
                return Err(RelationalError::ForeignColumn { column: name.clone() });
            }
            if column.len() != rows {
                return Err(RelationalError::LengthMismatch {
                    column: name.clone(),
                    expected: rows as u64,
                    found: column.len() as u64,
                });
            }
        }
        Ok(Self { engine: engine.clone(), rows, columns })
    }

    /// A table that was made before it was known how many rows there would be: now it is.
    pub(crate) fn with_rows(mut self, rows: usize) -> RelationalResult<Self> {
        for (name, column) in &mut self.columns {
            if !column.set_len(rows) {
                let (column, expected) = (name.clone(), rows as u64);
                let found = self.rows as u64;
                return Err(RelationalError::LengthMismatch { column, expected, found });
            }
        }
        self.rows = rows;
        Ok(self)
    }

    /// The engine whose memory it is.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows as u64
    }

    /// How many columns there are.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Names and types. A column counts as nullable if it has memory for which values are there.
    #[must_use]
    pub fn schema(&self) -> Schema {
        let fields = self.columns.iter().map(|(name, column)| Field {
            name: name.clone(),
            data_type: column.data_type(),
            nullable: column.is_nullable(),
        });
        // Names were checked when the table was made.
        Schema::new(fields.collect()).unwrap_or_default()
    }

    /// The columns with their names, in order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &Column)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> RelationalResult<&Column> {
        let found = self.columns.iter().find(|(other, _)| other == name);
        found.map(|(_, column)| column).ok_or_else(|| {
            RelationalError::unknown_column(name, self.columns.iter().map(|(n, _)| n.as_str()))
        })
    }

    /// The table of some of the columns, in the order asked for.
    pub fn select(&self, names: &[&str]) -> RelationalResult<Self> {
        let columns: RelationalResult<Vec<_>> =
            names.iter().map(|name| Ok((*name, self.column(name)?.clone()))).collect();
        Self::new(&self.engine, columns?)
    }

    /// The same table with one column called otherwise.
    pub fn rename(&self, from: &str, to: impl Into<String>) -> RelationalResult<Self> {
        self.column(from)?;
        let to = to.into();
        let columns = self.columns.iter().map(|(name, column)| {
            let name = if name == from { &to } else { name };
            (name.clone(), column.clone())
        });
        Self::new(&self.engine, columns)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} rows; {})", self.rows, self.schema())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xlog_cuda::{CudaDevice, device_runtime::StreamId};

    use super::*;

    #[test]
    fn what_does_not_stand_side_by_side_is_refused_by_name() {
        let engine = Engine::new(Arc::new(CudaDevice::host())).unwrap();
        let other = Engine::new(Arc::new(CudaDevice::host())).unwrap();
        let of = |engine: &Engine, values: &[u32]| {
            Column::from_slice(engine, values, StreamId::DEFAULT).unwrap()
        };
        let (two, three) = (of(&engine, &[1, 2]), of(&engine, &[1, 2, 3]));
        let refused = |columns: [(&str, Column); 2]| Table::new(&engine, columns).unwrap_err();

        let error = refused([("a", two.clone()), ("b", three)]);
        let expected =
            RelationalError::LengthMismatch { column: "b".into(), expected: 2, found: 3 };
        assert_eq!(error, expected);
        let error = refused([("a", two.clone()), ("a", two.clone())]);
        assert_eq!(error, RelationalError::DuplicateColumn { name: "a".into() });
        let error = refused([("a", two.clone()), ("b", of(&other, &[1, 2]))]);
        assert_eq!(error, RelationalError::ForeignColumn { column: "b".into() });

        let table = Table::new(&engine, [("a", two.clone()), ("b", two)]).unwrap();
        assert!(table.rename("a", "b").is_err());
        let renamed = table.rename("a", "c").unwrap();
        assert_eq!(renamed.columns().map(|(name, _)| name).collect::<Vec<_>>(), ["c", "b"]);
        assert!(Table::new(&engine, Vec::<(String, Column)>::new()).unwrap().rows() == 0);
    }
}
