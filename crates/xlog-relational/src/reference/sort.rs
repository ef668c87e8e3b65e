//! Sorting, the first few, and a window of rows.

use std::cmp::Ordering;

use super::Relation;
use crate::{error::RelationalResult, scalar::Scalar, sort_key::SortKey};

/// The rows in the order of `keys`, the first key first; equal ones as they stood.
pub fn sort(input: &Relation, keys: &[SortKey]) -> RelationalResult<Relation> {
    let columns: RelationalResult<Vec<_>> =
        keys.iter().map(|key| input.column(&key.column)).collect();
    let columns = columns?;
    let mut rows: Vec<usize> = (0..input.rows()).collect();
    rows.sort_by(|a, b| {
        let by_key = keys.iter().zip(&columns).map(|(key, column)| {
            order(key, column.values[*a].as_ref(), column.values[*b].as_ref())
        });
        by_key.fold(Ordering::Equal, Ordering::then)
    });
    Ok(input.take(&rows))
}

fn order(key: &SortKey, a: Option<&Scalar>, b: Option<&Scalar>) -> Ordering {
    let missing_first = if key.nulls_first { Ordering::Less } else { Ordering::Greater };
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => missing_first,
        (Some(_), None) => missing_first.reverse(),
        (Some(a), Some(b)) => {
            let ascending = a.sort_order(b).unwrap_or(Ordering::Equal);
            if key.descending { ascending.reverse() } else { ascending }
        }
    }
}

/// The first `count` rows of the sorted table.
pub fn top_k(input: &Relation, keys: &[SortKey], count: u64) -> RelationalResult<Relation> {
    Ok(limit(&sort(input, keys)?, 0, count))
}

/// At most `count` rows from row `offset` on.
#[must_use]
pub fn limit(input: &Relation, offset: u64, count: u64) -> Relation {
    let rows = input.rows() as u64;
    let (start, end) = (offset.min(rows), offset.saturating_add(count).min(rows));
    input.take(&(start as usize..end as usize).collect::<Vec<_>>())
}
