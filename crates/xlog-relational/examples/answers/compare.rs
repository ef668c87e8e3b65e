//! A result beside its answer: row by row where an order is promised, else as bags of rows.

use std::{cmp::Ordering, collections::HashMap};

use serde_json::Value;
use xlog_relational::{DataType, Scalar, reference::Relation};

use crate::{Failure, list_of, table};

/// How `found` differs from what is expected, if it does.
pub(crate) fn difference(found: &Relation, expected: &Value) -> Result<Option<String>, Failure> {
    let answer = table::relation(&expected["columns"])?;
    let described = |relation: &Relation| -> Vec<(String, DataType)> {
        let fields = relation.columns().iter().map(|column| &column.field);
        fields.map(|field| (field.name.clone(), field.data_type)).collect()
    };
    if described(found) != described(&answer) {
        let (found, answer) = (described(found), described(&answer));
        return Ok(Some(format!("columns {found:?}, expected {answer:?}")));
    }
    if found.rows() != answer.rows() {
        return Ok(Some(format!("{} rows, expected {}", found.rows(), answer.rows())));
    }
    let zeros = expected["zeros"].as_bool().unwrap_or(true);
    let tolerances = tolerances(expected)?;
    let (mut theirs, mut ours) = (numbered(&answer, zeros), numbered(found, zeros));
    if expected["ordered"].as_bool() == Some(false) {
        let exact: Vec<usize> = (0..answer.columns().len())
            .filter(|place| !tolerances.contains_key(&answer.columns()[*place].field.name))
            .collect();
        for rows in [&mut theirs, &mut ours] {
            rows.sort_by(|(_, a), (_, b)| {
                let places =
                    exact.iter().map(|place| order(a[*place].as_ref(), b[*place].as_ref()));
                places.fold(Ordering::Equal, Ordering::then)
            });
        }
    }
    for (place, ((row, expected), (_, found))) in theirs.iter().zip(&ours).enumerate() {
        for (column, (expected, found)) in answer.columns().iter().zip(expected.iter().zip(found)) {
            let name = &column.field.name;
            let tolerance = tolerances.get(name).and_then(|rows| rows.get(*row)).copied();
            if !same(expected.as_ref(), found.as_ref(), tolerance.flatten()) {
                return Ok(Some(format!(
                    "row {place}, column {name:?}: {found:?}, expected {expected:?}"
                )));
            }
        }
    }
    Ok(None)
}

/// How far off each value of a column may be, by the column's name.
fn tolerances(expected: &Value) -> Result<HashMap<String, Vec<Option<f64>>>, Failure> {
    let Some(columns) = expected["tolerance"].as_object() else { return Ok(HashMap::new()) };
    let columns = columns.iter().map(|(name, values)| {
        let values = list_of(values)?.iter().map(|bits| bits.as_u64().map(f64::from_bits));
        Ok((name.clone(), values.collect()))
    });
    columns.collect()
}

/// Every row with its number. All NaN become one, and zeros too if their sign does not count.
fn numbered(relation: &Relation, zeros: bool) -> Vec<(usize, Vec<Option<Scalar>>)> {
    let plain = |value: Scalar| match value {
        Scalar::F32(number) if number.is_nan() => Scalar::F32(f32::NAN),
        Scalar::F64(number) if number.is_nan() => Scalar::F64(f64::NAN),
        Scalar::F32(0.0) if !zeros => Scalar::F32(0.0),
        Scalar::F64(0.0) if !zeros => Scalar::F64(0.0),
        value => value,
    };
    let row = |row| (row, relation.row(row).into_iter().map(|value| value.map(plain)).collect());
    (0..relation.rows()).map(row).collect()
}

fn order(a: Option<&Scalar>, b: Option<&Scalar>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.sort_order(b).unwrap_or(Ordering::Equal),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

fn same(a: Option<&Scalar>, b: Option<&Scalar>, tolerance: Option<f64>) -> bool {
    match (a, b, tolerance) {
        (Some(Scalar::F64(a)), Some(Scalar::F64(b)), Some(tolerance)) if a != b => {
            (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance
        }
        (Some(a), Some(b), _) => a.sort_order(b) == Some(Ordering::Equal),
        (a, b, _) => a.is_none() && b.is_none(),
    }
}
