//! Joins, by looking at every pair.

use super::{HostColumn, Relation, relation::identity};
use crate::{
    error::{RelationalError, RelationalResult},
    join_kind::JoinKind,
    types::Field,
};

/// Left and right rows whose keys are equal, pair by pair: `on` names each key on both sides.
pub fn join(
    left: &Relation,
    right: &Relation,
    on: &[(&str, &str)],
    kind: JoinKind,
) -> RelationalResult<Relation> {
    let left_keys = left.named(&on.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
    let right_keys = right.named(&on.iter().map(|(_, name)| *name).collect::<Vec<_>>())?;
    for (a, b) in left_keys.iter().zip(&right_keys) {
        if a.field.data_type != b.field.data_type {
            let column = format!("join key {:?} of the right table", b.field.name);
            let (expected, found) = (a.field.data_type, b.field.data_type);
            return Err(RelationalError::type_mismatch(column, expected, found));
        }
    }
    let all_there = |columns: &[&HostColumn], row: usize| {
        columns.iter().all(|column| column.values[row].is_some())
    };
    let matches = |l: usize, r: usize| {
        all_there(&left_keys, l) && identity(&left_keys, l) == identity(&right_keys, r)
    };
    let mut pairs: Vec<(Option<usize>, Option<usize>)> = Vec::new();
    let mut right_matched = vec![false; right.rows()];
    for l in 0..left.rows() {
        let found: Vec<usize> = (0..right.rows()).filter(|r| matches(l, *r)).collect();
        found.iter().for_each(|r| right_matched[*r] = true);
        match kind {
            JoinKind::Semi => pairs.extend((!found.is_empty()).then_some((Some(l), None))),
            JoinKind::Anti => pairs.extend(found.is_empty().then_some((Some(l), None))),
            JoinKind::Left | JoinKind::Full if found.is_empty() => pairs.push((Some(l), None)),
            _ => pairs.extend(found.into_iter().map(|r| (Some(l), Some(r)))),
        }
    }
    if kind.keeps_right() {
        let unmatched = (0..right.rows()).filter(|r| !right_matched[*r]);
        pairs.extend(unmatched.map(|r| (None, Some(r))));
    }
    let side =
        |column: &HostColumn, name: String, rows: &mut dyn Iterator<Item = Option<usize>>| {
            let values = rows.map(|row| row.and_then(|row| column.values[row].clone())).collect();
            HostColumn::new(Field { name, ..column.field.clone() }, values)
        };
    let mut columns: Vec<HostColumn> = left
        .columns()
        .iter()
        .map(|column| side(column, column.field.name.clone(), &mut pairs.iter().map(|(l, _)| *l)))
        .collect();
    if !kind.is_left_only() {
        for column in right.columns() {
            let name = &column.field.name;
            let taken = left.columns().iter().any(|other| other.field.name == *name);
            let name = if taken { format!("{name}_right") } else { name.clone() };
            columns.push(side(column, name, &mut pairs.iter().map(|(_, r)| *r)));
        }
    }
    Relation::new(columns)
}
