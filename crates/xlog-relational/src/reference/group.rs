//! Groups, one after the other in the order in which they first occur.

use std::collections::HashMap;

use super::{HostColumn, Relation, relation::identity};
use crate::{
    aggregate::{Aggregate, AggregateFunction},
    error::{RelationalError, RelationalResult},
    scalar::Scalar,
    types::{DataType, Field},
};

/// One row for each combination of keys: the keys, then the figures. Missing keys are equal, and
/// form a group. Without keys all rows are one group, even if there are none.
pub fn group_by(
    input: &Relation,
    keys: &[&str],
    aggregates: &[Aggregate],
) -> RelationalResult<Relation> {
    let key_columns = input.named(keys)?;
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for row in 0..input.rows() {
        let group = *known.entry(identity(&key_columns, row)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(row);
    }
    if keys.is_empty() && groups.is_empty() {
        groups.push(Vec::new());
    }
    let mut columns: Vec<HostColumn> = key_columns
        .iter()
        .map(|column| HostColumn {
            field: column.field.clone(),
            values: groups.iter().map(|group| column.values[group[0]].clone()).collect(),
        })
        .collect();
    let schema = input.schema();
    for aggregate in aggregates {
        let field = aggregate.field(&schema)?;
        let column = aggregate.column.as_deref().map(|name| input.column(name)).transpose()?;
        let values: RelationalResult<Vec<_>> = groups
            .iter()
            .map(|group| {
                let there: Vec<Scalar> = column.map_or(Vec::new(), |column| {
                    group.iter().filter_map(|row| column.values[*row].clone()).collect()
                });
                figure(aggregate, &field, group.len(), &there)
            })
            .collect();
        columns.push(HostColumn { field, values: values? });
    }
    Relation::new(columns)
}

/// One figure of a group of `rows` rows, in which `values` are there.
fn figure(
    aggregate: &Aggregate,
    field: &Field,
    rows: usize,
    values: &[Scalar],
) -> RelationalResult<Option<Scalar>> {
    let by_order = |a: &&Scalar, b: &&Scalar| a.sort_order(b).unwrap_or(std::cmp::Ordering::Equal);
    Ok(match aggregate.function {
        AggregateFunction::CountRows => Some(Scalar::U64(rows as u64)),
        AggregateFunction::Count => Some(Scalar::U64(values.len() as u64)),
        AggregateFunction::CountDistinct => {
            let mut identities: Vec<_> = values.iter().map(Scalar::key_identity).collect();
            identities.sort();
            identities.dedup();
            Some(Scalar::U64(identities.len() as u64))
        }
        AggregateFunction::Min => values.iter().min_by(by_order).cloned(),
        AggregateFunction::Max => values.iter().max_by(by_order).cloned(),
        _ if values.is_empty() => None,
        AggregateFunction::Mean => {
            let whole: Option<i128> = values.iter().map(whole_number).sum();
            let sum = whole.map_or_else(|| values.iter().map(real_number).sum(), |sum| sum as f64);
            Some(Scalar::F64(sum / values.len() as f64))
        }
        AggregateFunction::Sum => {
            let whole = || values.iter().filter_map(whole_number).sum::<i128>();
            let overflow = || RelationalError::Overflow {
                operation: format!(
                    "{}({}) in {}",
                    aggregate.function.name(),
                    aggregate.column.as_deref().unwrap_or(""),
                    field.data_type
                ),
            };
            Some(match field.data_type {
                DataType::U64 => Scalar::U64(whole().try_into().map_err(|_| overflow())?),
                DataType::I64 => Scalar::I64(whole().try_into().map_err(|_| overflow())?),
                _ => Scalar::F64(values.iter().map(real_number).sum()),
            })
        }
    })
}

fn whole_number(value: &Scalar) -> Option<i128> {
    match value {
        Scalar::U32(value) => Some(i128::from(*value)),
        Scalar::U64(value) => Some(i128::from(*value)),
        Scalar::I32(value) => Some(i128::from(*value)),
        Scalar::I64(value) => Some(i128::from(*value)),
        _ => None,
    }
}

fn real_number(value: &Scalar) -> f64 {
    match value {
        Scalar::F32(value) => f64::from(*value),
        Scalar::F64(value) => *value,
        other => whole_number(other).map_or(f64::NAN, |whole| whole as f64),
    }
}
