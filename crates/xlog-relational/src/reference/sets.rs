//! Rows as sets and as bags. Missing values are equal to each other here.

use std::collections::{HashMap, HashSet};

use super::{HostColumn, Relation};
use crate::error::{RelationalError, RelationalResult};

/// Every different row once, the first of its kind.
#[must_use]
pub fn distinct(input: &Relation) -> Relation {
    let mut seen = HashSet::new();
    let rows: Vec<usize> =
        (0..input.rows()).filter(|row| seen.insert(input.row_identity(*row))).collect();
    input.take(&rows)
}

/// The rows of the first, then those of the second. Columns are matched by place, and called as in
/// the first; their types must be the same.
pub fn concat(left: &Relation, right: &Relation) -> RelationalResult<Relation> {
    check(left, right)?;
    let columns = left.columns().iter().zip(right.columns()).map(|(a, b)| {
        let values = a.values.iter().chain(&b.values).cloned().collect();
        HostColumn::new(a.field.clone(), values)
    });
    Relation::new(columns.collect())
}

/// Every different row of either: SQL's `union`. Its `union all` is [`concat()`].
pub fn union(left: &Relation, right: &Relation) -> RelationalResult<Relation> {
    Ok(distinct(&concat(left, right)?))
}

/// Every different row that is in both; with `all`, as often as in the one that has it less often.
pub fn intersect(left: &Relation, right: &Relation, all: bool) -> RelationalResult<Relation> {
    check(left, right)?;
    let mut counts = counts_of(right);
    let kept = (0..left.rows()).filter(|row| match counts.get_mut(&left.row_identity(*row)) {
        Some(count) if *count > 0 => {
            *count -= usize::from(all);
            true
        }
        _ => false,
    });
    let kept = left.take(&kept.collect::<Vec<_>>());
    Ok(if all { kept } else { distinct(&kept) })
}

/// Every different row of the left that is not in the right; with `all`, as often as the left has
/// it more often.
pub fn except(left: &Relation, right: &Relation, all: bool) -> RelationalResult<Relation> {
    check(left, right)?;
    let mut counts = counts_of(right);
    let kept = (0..left.rows()).filter(|row| match counts.get_mut(&left.row_identity(*row)) {
        Some(count) if *count > 0 => {
            *count -= usize::from(all);
            false
        }
        _ => true,
    });
    let kept = left.take(&kept.collect::<Vec<_>>());
    Ok(if all { kept } else { distinct(&kept) })
}

fn counts_of(input: &Relation) -> HashMap<Vec<Option<crate::KeyIdentity>>, usize> {
    let mut counts = HashMap::new();
    for row in 0..input.rows() {
        *counts.entry(input.row_identity(row)).or_insert(0) += 1;
    }
    counts
}

fn check(left: &Relation, right: &Relation) -> RelationalResult<()> {
    let (a, b) = (left.columns(), right.columns());
    if a.len() != b.len() {
        return Err(RelationalError::WidthMismatch { expected: a.len(), found: b.len() });
    }
    for (a, b) in a.iter().zip(b) {
        if a.field.data_type != b.field.data_type {
            let column = format!("column {:?} of the right table", b.field.name);
            let (expected, found) = (a.field.data_type, b.field.data_type);
            return Err(RelationalError::type_mismatch(column, expected, found));
        }
    }
    Ok(())
}
