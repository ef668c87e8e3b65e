//! Tables one behind the other.

use std::sync::Arc;

use bytemuck::Pod;
use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use super::{
    bits::{copy_bits, set_bits},
    sizes::row_bytes,
};
use crate::{
    Engine,
    column::{Column, ColumnParts, Dictionary, Values, validity_words},
    error::{RelationalError, RelationalResult},
    primitives::gather,
    table::Table,
};

/// The rows of all tables, those of the first one first. Never waits for the device.
///
/// Columns are matched by place and called as in the first table; their types must be the same. If
/// only one table has rows, its memory is shared. Texts get one dictionary; the codes of a table
/// whose own differs are translated on the device.
pub fn concat(tables: &[&Table], stream: StreamId) -> RelationalResult<Table> {
    let Some((first, others)) = tables.split_first() else {
        let reason = "concat was given no table; give it one or more".to_owned();
        return Err(RelationalError::InvalidPlan { reason });
    };
    others.iter().try_for_each(|other| check(first, other))?;
    let mut rows = 0usize;
    for table in tables {
        let sum = rows.checked_add(table.rows() as usize);
        rows = sum.ok_or_else(|| RelationalError::TooMany {
            what: "rows".to_owned(),
            found: u64::MAX,
            most: usize::MAX as u64,
        })?;
    }
    let joined: RelationalResult<Vec<_>> = first
        .columns()
        .enumerate()
        .map(|(place, (name, _))| {
            let columns: Vec<&Column> = tables
                .iter()
                .filter_map(|table| table.columns().nth(place).map(|(_, column)| column))
                .collect();
            Ok((name, join(first.engine(), &columns, rows, stream)?))
        })
        .collect();
    let joined = joined.map_err(|error| {
        let bytes = tables.iter().map(|table| row_bytes(table)).max().unwrap_or(0);
        let needed = (rows as u64).saturating_mul(bytes);
        error.needing(&format!("a table of {rows} rows"), Some(needed))
    })?;
    Table::new(first.engine(), joined)
}

/// Whether the rows of `other` can stand behind those of `first`.
fn check(first: &Table, other: &Table) -> RelationalResult<()> {
    if first.width() != other.width() {
        let (expected, found) = (first.width(), other.width());
        return Err(RelationalError::WidthMismatch { expected, found });
    }
    for ((name, a), (other_name, b)) in first.columns().zip(other.columns()) {
        if !a.engine().is_same(b.engine()) {
            return Err(RelationalError::ForeignColumn { column: other_name.to_owned() });
        }
        if a.data_type() != b.data_type() {
            let column = format!("column {other_name:?} of a further table");
            let expected = format!("{}, like {name:?} of the first", a.data_type());
            return Err(RelationalError::type_mismatch(column, expected, b.data_type()));
        }
    }
    Ok(())
}

/// One column of all rows.
fn join(
    engine: &Engine,
    columns: &[&Column],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<Column> {
    let filled: Vec<&Column> = columns.iter().copied().filter(|c| !c.is_empty()).collect();
    if let ([only], _) | ([], [only, ..]) = (&filled[..], columns) {
        return Ok((*only).clone());
    }
    let (values, dictionary) = values_of(engine, &filled, rows, stream)?;
    let validity = match filled.iter().any(|column| column.is_nullable()) {
        true => Some(Arc::new(validity_of(engine, &filled, rows, stream)?)),
        false => None,
    };
    let null_count = filled.iter().map(|column| column.null_count()).sum();
    let data_type = filled[0].data_type();
    let parts = ColumnParts { data_type, len: rows, values, validity, null_count, dictionary };
    Column::from_parts(engine, parts)
}

fn values_of(
    engine: &Engine,
    columns: &[&Column],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<(Values, Option<Arc<Dictionary>>)> {
    // Columns of one type have memory of one width: no other variant is left out.
    macro_rules! of_width {
        ($variant:ident) => {{
            let parts = columns.iter().filter_map(|column| match column.values() {
                Values::$variant(slice) => Some((&**slice, column.len())),
                _ => None,
            });
            copy_all(engine, parts, rows, stream)?.into()
        }};
    }
    let values = match columns[0].values() {
        Values::Bytes(_) => of_width!(Bytes),
        Values::Longs(_) => of_width!(Longs),
        Values::Words(_) => match columns[0].dictionary() {
            Some(dictionary) => return text_of(engine, columns, dictionary, rows, stream),
            None => of_width!(Words),
        },
    };
    Ok((values, None))
}

/// The codes of all texts in one dictionary.
fn text_of(
    engine: &Engine,
    columns: &[&Column],
    first: &Arc<Dictionary>,
    rows: usize,
    stream: StreamId,
) -> RelationalResult<(Values, Option<Arc<Dictionary>>)> {
    let codes = engine.alloc::<u32>(rows.max(1), stream, "column values")?;
    let mut dictionary = Arc::clone(first);
    let mut start = 0;
    for column in columns {
        let (Values::Words(own), Some(other)) = (column.values(), column.dictionary()) else {
            continue;
        };
        // Codes that were given before stay what they are.
        let unified = Dictionary::unify(&dictionary, other)?;
        dictionary = unified.dictionary;
        let place = codes.view(start..start + column.len())?;
        match unified.right_codes {
            Some(map) => {
                let mut table = engine.alloc(map.len().max(1), stream, "codes of text")?;
                if map.is_empty() {
                    table.fill_bytes(0, stream)?;
                } else {
                    table.upload_on(&map, stream)?;
                }
                let len = column.len() as u64;
                // A missing row's code may be none of the dictionary's: it becomes 0.
                let translated = gather(engine, stream, &table, map.len() as u64, own, len)?;
                place.copy_from(&translated.view(..column.len())?, stream)?;
            }
            None => place.copy_from(&own.view(..column.len())?, stream)?,
        }
        start += column.len();
    }
    Ok((codes.into(), Some(dictionary)))
}

fn copy_all<'c, T: Pod>(
    engine: &Engine,
    parts: impl Iterator<Item = (&'c TrackedCudaSlice<T>, usize)>,
    rows: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<T>> {
    let all = engine.alloc::<T>(rows.max(1), stream, "column values")?;
    let mut start = 0;
    for (slice, len) in parts {
        all.view(start..start + len)?.copy_from(&slice.view(..len)?, stream)?;
        start += len;
    }
    Ok(all)
}

fn validity_of(
    engine: &Engine,
    columns: &[&Column],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<u32>> {
    let mut all = engine.alloc::<u32>(validity_words(rows), stream, "column validity")?;
    all.fill_bytes(0, stream)?;
    let mut start = 0;
    for column in columns {
        let len = column.len() as u64;
        match column.validity() {
            Some(words) => copy_bits(engine, stream, (words, 0), (&all, start), len)?,
            None => set_bits(engine, stream, (&all, start), len)?,
        }
        start += len;
    }
    Ok(all)
}
