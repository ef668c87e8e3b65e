//! Operators as the folder keeps them.

use std::collections::HashMap;

use serde_json::Value;
use xlog_cuda::device_runtime::StreamId;
use xlog_relational::{
    Aggregate, AggregateFunction, JoinKind, RelationalResult, SortKey, Table, ops,
};

use crate::{Failure, expression::expression, list_of, text_of};

/// Runs an operator over the tables it names. What the operator itself refuses is its result.
pub(crate) fn run(
    operation: &Value,
    inputs: &Value,
    tables: &HashMap<String, Table>,
    stream: StreamId,
) -> Result<RelationalResult<Table>, Failure> {
    let inputs = list_of(inputs)?.iter().map(|input| selected(input, tables));
    let inputs = inputs.collect::<Result<Vec<Table>, Failure>>()?;
    let table = inputs.first().ok_or("an operator needs a table")?;
    let other = inputs.last().ok_or("an operator needs a table")?;
    let all = operation["all"].as_bool().unwrap_or(false);
    let operator = text_of(&operation["operator"])?;
    Ok(match operator {
        "sort" => ops::sort(table, &sort_keys(&operation["keys"])?, stream),
        "top_k" => {
            let keys = sort_keys(&operation["keys"])?;
            ops::top_k(table, &keys, number(&operation["count"])?, stream)
        }
        "filter" => {
            let (predicate, keep) = (expression(&operation["predicate"])?, &operation["keep"]);
            let kept = ops::filter(table, &predicate, stream);
            let keep = texts(keep)?;
            kept.and_then(|kept| kept.select(&keep))
        }
        "project" => {
            let columns = list_of(&operation["columns"])?.iter();
            let columns = columns.map(|c| Ok((text_of(&c[0])?, expression(&c[1])?)));
            let columns = columns.collect::<Result<Vec<_>, Failure>>()?;
            ops::project(table, &columns, stream)
        }
        "join" => {
            let on = list_of(&operation["on"])?.iter();
            let on = on.map(|key| Ok((text_of(&key[0])?, text_of(&key[1])?)));
            let on = on.collect::<Result<Vec<_>, Failure>>()?;
            let name = text_of(&operation["kind"])?;
            let kind = JoinKind::ALL.into_iter().find(|kind| kind.to_string() == name);
            let kind = kind.ok_or_else(|| format!("there is no {name} join"))?;
            ops::hash_join(table, other, &on, kind, stream)
        }
        "group_by" => {
            let aggregates = list_of(&operation["aggregates"])?.iter().map(aggregate);
            let aggregates = aggregates.collect::<Result<Vec<_>, Failure>>()?;
            ops::group_by(table, &texts(&operation["keys"])?, &aggregates, stream)
        }
        "distinct" => ops::distinct(table, Some(&texts(&operation["columns"])?), stream),
        "union" => ops::union(table, other, stream),
        "intersect" => ops::intersect(table, other, all, stream),
        "except" => ops::except(table, other, all, stream),
        "concat" => ops::concat(&inputs.iter().collect::<Vec<_>>(), stream),
        "limit" => {
            let (offset, count) = (number(&operation["offset"])?, number(&operation["count"])?);
            ops::limit(table, offset, count, stream)
        }
        other => return Err(format!("there is no operator {other}").into()),
    })
}

/// A table, with the columns that are asked for; with all of them if none are.
fn selected(input: &Value, tables: &HashMap<String, Table>) -> Result<Table, Failure> {
    let name = text_of(&input["table"])?;
    let table = tables.get(name).ok_or_else(|| format!("there is no table {name}"))?;
    Ok(match &input["columns"] {
        Value::Null => table.clone(),
        columns => table.select(&texts(columns)?)?,
    })
}

fn sort_keys(keys: &Value) -> Result<Vec<SortKey>, Failure> {
    let flag = |value: &Value| value.as_bool().ok_or("a direction is true or false");
    let key = |key: &Value| -> Result<SortKey, Failure> {
        let (column, descending) = (text_of(&key[0])?.to_owned(), flag(&key[1])?);
        Ok(SortKey { column, descending, nulls_first: flag(&key[2])? })
    };
    list_of(keys)?.iter().map(key).collect()
}

fn aggregate(json: &Value) -> Result<Aggregate, Failure> {
    let name = text_of(&json[0])?;
    let function = AggregateFunction::ALL.into_iter().find(|function| function.name() == name);
    let function = function.ok_or_else(|| format!("there is no function {name}"))?;
    let column = json[1].as_str().map(str::to_owned);
    Ok(Aggregate { function, column, name: text_of(&json[2])?.to_owned() })
}

fn texts(list: &Value) -> Result<Vec<&str>, Failure> {
    list_of(list)?.iter().map(text_of).collect()
}

fn number(value: &Value) -> Result<u64, Failure> {
    value.as_u64().ok_or_else(|| format!("{value} should be a number of rows").into())
}
