//! Tables one behind the other, and windows of tables.

use std::{ops::Range, sync::Arc};

use bytemuck::Pod;
use xlog_cuda::{device_runtime::StreamId, memory::TrackedCudaSlice};

use super::{
    bits::{copy_bits, set_bits},
    limit::part,
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
    let windows: Vec<_> = tables.iter().map(|table| (*table, 0..table.rows())).collect();
    concat_windows(&windows, stream)
}

/// Some rows of each table, those of the first one first: [`concat()`] of windows, without a copy
/// of each. Windows end where their table does.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, RelationalError, Scalar, Table};
/// use xlog_relational::{ops::concat_windows, reference::Relation};
///
/// let engine = Engine::new(Arc::new(CudaDevice::host()))?;
/// let column = |values: &[u32]| Column::from_slice(&engine, values, StreamId::DEFAULT);
/// let a = Table::new(&engine, [("n", column(&[1, 2, 3])?)])?;
/// let b = Table::new(&engine, [("n", column(&[4, 5, 6])?)])?;
/// let rows = concat_windows(&[(&a, 1..2), (&b, 1..9)], StreamId::DEFAULT)?;
/// let rows = Relation::from_batch(&rows.download(StreamId::DEFAULT)?)?;
/// assert_eq!(rows.row(2), [Some(Scalar::U32(6))]);
/// # Ok::<(), RelationalError>(())
/// ```
pub fn concat_windows(
    windows: &[(&Table, Range<u64>)],
    stream: StreamId,
) -> RelationalResult<Table> {
    let Some(((first, _), others)) = windows.split_first() else {
        let reason = "concat was given no table; give it one or more".to_owned();
        return Err(RelationalError::InvalidPlan { reason });
    };
    others.iter().try_for_each(|(other, _)| check(first, other))?;
    let windows: Vec<(&Table, Range<usize>)> = windows
        .iter()
        .map(|(table, window)| {
            let end = window.end.min(table.rows()) as usize;
            (*table, end.min(usize::try_from(window.start).unwrap_or(end))..end)
        })
        .collect();
    let mut rows = 0usize;
    for (_, window) in &windows {
        let sum = rows.checked_add(window.len());
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
            let columns: Vec<Window<'_>> = windows
                .iter()
                .filter_map(|(table, window)| {
                    table.columns().nth(place).map(|(_, column)| (column, window.clone()))
                })
                .collect();
            Ok((name, join(first.engine(), &columns, rows, stream)?))
        })
        .collect();
    let joined = joined.map_err(|error| {
        let bytes = windows.iter().map(|(table, _)| row_bytes(table)).max().unwrap_or(0);
        let needed = (rows as u64).saturating_mul(bytes);
        error.needing(&format!("a table of {rows} rows"), Some(needed))
    })?;
    Table::new(first.engine(), joined)
}

/// Some rows of a column.
type Window<'w> = (&'w Column, Range<usize>);

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
    columns: &[Window<'_>],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<Column> {
    let filled: Vec<_> = columns.iter().filter(|(_, window)| !window.is_empty()).cloned().collect();
    match (&filled[..], columns) {
        ([(only, window)], _) if window.len() == only.len() => return Ok((*only).clone()),
        ([], [(only, _), ..]) if only.is_empty() => return Ok((*only).clone()),
        ([], [(only, _), ..]) => return part(only, 0..0, stream),
        _ => {}
    }
    let (values, dictionary) = values_of(engine, &filled, rows, stream)?;
    let validity = match filled.iter().any(|(column, _)| column.is_nullable()) {
        true => Some(Arc::new(validity_of(engine, &filled, rows, stream)?)),
        false => None,
    };
    let whole = |(column, window): &Window<'_>| match column.null_count() {
        Some(0) => Some(0),
        count => count.filter(|_| window.len() == column.len()),
    };
    let null_count = filled.iter().map(whole).sum();
    let data_type = filled[0].0.data_type();
    let parts = ColumnParts { data_type, len: rows, values, validity, null_count, dictionary };
    Column::from_parts(engine, parts)
}

fn values_of(
    engine: &Engine,
    columns: &[Window<'_>],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<(Values, Option<Arc<Dictionary>>)> {
    // Columns of one type have memory of one width: no other variant is left out.
    macro_rules! of_width {
        ($variant:ident) => {{
            let parts = columns.iter().filter_map(|(column, window)| match column.values() {
                Values::$variant(slice) => Some((&**slice, window.clone())),
                _ => None,
            });
            copy_all(engine, parts, rows, stream)?.into()
        }};
    }
    let values = match columns[0].0.values() {
        Values::Bytes(_) => of_width!(Bytes),
        Values::Longs(_) => of_width!(Longs),
        Values::Words(_) => match columns[0].0.dictionary() {
            Some(dictionary) => return text_of(engine, columns, dictionary, rows, stream),
            None => of_width!(Words),
        },
    };
    Ok((values, None))
}

/// The codes of all texts in one dictionary.
fn text_of(
    engine: &Engine,
    columns: &[Window<'_>],
    first: &Arc<Dictionary>,
    rows: usize,
    stream: StreamId,
) -> RelationalResult<(Values, Option<Arc<Dictionary>>)> {
    let codes = engine.alloc::<u32>(rows.max(1), stream, "column values")?;
    let mut dictionary = Arc::clone(first);
    let mut start = 0;
    for (column, window) in columns {
        let (Values::Words(own), Some(other)) = (column.values(), column.dictionary()) else {
            continue;
        };
        // Codes that were given before stay what they are.
        let unified = Dictionary::unify(&dictionary, other)?;
        dictionary = unified.dictionary;
        let place = codes.view(start..start + window.len())?;
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
                place.copy_from(&translated.view(window.clone())?, stream)?;
            }
            None => place.copy_from(&own.view(window.clone())?, stream)?,
        }
        start += window.len();
    }
    Ok((codes.into(), Some(dictionary)))
}

fn copy_all<'c, T: Pod>(
    engine: &Engine,
    parts: impl Iterator<Item = (&'c TrackedCudaSlice<T>, Range<usize>)>,
    rows: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<T>> {
    let all = engine.alloc::<T>(rows.max(1), stream, "column values")?;
    let mut start = 0;
    for (slice, window) in parts {
        let len = window.len();
        all.view(start..start + len)?.copy_from(&slice.view(window)?, stream)?;
        start += len;
    }
    Ok(all)
}

fn validity_of(
    engine: &Engine,
    columns: &[Window<'_>],
    rows: usize,
    stream: StreamId,
) -> RelationalResult<TrackedCudaSlice<u32>> {
    let mut all = engine.alloc::<u32>(validity_words(rows), stream, "column validity")?;
    all.fill_bytes(0, stream)?;
    let mut start = 0;
    for (column, window) in columns {
        let len = window.len() as u64;
        match column.validity() {
            Some(words) => {
                let from = (&**words, window.start as u64);
                copy_bits(engine, stream, from, (&all, start), len)?;
            }
            None => set_bits(engine, stream, (&all, start), len)?,
        }
        start += len;
    }
    Ok(all)
}
