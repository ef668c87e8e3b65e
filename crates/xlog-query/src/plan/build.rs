//! From clauses to operators: names become columns, and types are made to fit.

use std::collections::HashMap;

use xlog_relational::{
    Aggregate, DataType, Expr, Field, JoinKind, RelationalError, Schema, SortKey, col, lit,
};

use super::{
    Clause, Combination, JoinSpec, LogicalNode, LogicalPlan, Operation, Query, SetKind, Step,
    logical::{columns_of, conjunction, conjuncts, renamed},
};
use crate::{
    error::{QueryError, QueryResult},
    nearest::nearest,
    parse::{AggregateOutput, JoinKey, Output, Selected},
};

impl LogicalPlan {
    /// The operators of a query over inputs with these names and columns.
    pub(crate) fn of(query: &Query, sources: &[(String, Schema)]) -> QueryResult<Self> {
        let mut builder = Builder::default();
        for (source, (name, schema)) in sources.iter().enumerate() {
            let scan = Operation::Scan { source };
            let node = builder.add(name, scan, vec![], schema.clone());
            builder.define(name, node)?;
        }
        for step in &query.steps {
            let node = builder.step(step)?;
            builder.define(&step.name, node)?;
        }
        for output in &query.outputs {
            let node = builder.table(output, "the result")?;
            builder.plan.outputs.push(node);
        }
        builder.plan.prune();
        Ok(builder.plan)
    }
}

/// What the names of columns begin with that no user sees.
const HIDDEN: char = '\u{1}';

/// Both sides of a join, and a column of each for every key.
type KeyedSides = (usize, usize, Vec<(String, String)>);

#[derive(Default)]
struct Builder {
    plan: LogicalPlan,
    tables: HashMap<String, usize>,
}

impl Builder {
    fn add(
        &mut self,
        step: &str,
        operation: Operation,
        inputs: Vec<usize>,
        schema: Schema,
    ) -> usize {
        self.plan.nodes.push(LogicalNode { operation, inputs, schema, step: step.to_owned() });
        self.plan.nodes.len() - 1
    }

    fn define(&mut self, name: &str, node: usize) -> QueryResult<()> {
        match self.tables.insert(name.to_owned(), node) {
            None => Ok(()),
            Some(_) => Err(QueryError::plan(format!("two tables are called {name:?}; rename one"))),
        }
    }

    fn table(&self, name: &str, whose: &str) -> QueryResult<usize> {
        self.tables.get(name).copied().ok_or_else(|| {
            let known = self.tables.keys().map(String::as_str);
            let meant = nearest(name, known).map(|name| format!("; did you mean {name:?}?"));
            QueryError::plan(format!(
                "{whose} reads {name:?}, which is no input and no step before it{}",
                meant.unwrap_or_default()
            ))
        })
    }

    fn schema(&self, node: usize) -> &Schema {
        &self.plan.nodes[node].schema
    }

    fn step(&mut self, step: &Step) -> QueryResult<usize> {
        let whose = if step.name.is_empty() { "the query" } else { &step.name };
        let mut node = self.table(&step.from, whose)?;
        let mut filter = step.filter.as_ref().map(|clause| clause.value.clone());
        match &step.combination {
            Some(Combination::Join { with, on, kind }) => {
                let right = self.table(with, whose)?;
                node = self.join(step, node, right, on, *kind, &mut filter)?;
            }
            Some(Combination::Set { with, kind }) => {
                let right = self.table(with, whose)?;
                node = self.set(step, node, right, *kind)?;
            }
            None => {}
        }
        if let (Some(filter), Some(clause)) = (filter, &step.filter) {
            self.check_filter(clause, node)?;
            let schema = self.schema(node).clone();
            node = self.add(&step.name, Operation::Filter(filter), vec![node], schema);
        }
        if step.group.is_some() || step.aggregates.is_some() {
            node = self.group(step, node)?;
        }
        if let Some(clause) = &step.having {
            self.check_filter(clause, node)?;
            let schema = self.schema(node).clone();
            let keep = Operation::Filter(clause.value.clone());
            node = self.add(&step.name, keep, vec![node], schema);
        }
        self.arrange(step, node)
    }

    fn check_filter(&self, clause: &Clause<Expr>, node: usize) -> QueryResult<()> {
        let checked = clause.value.check_predicate(self.schema(node));
        checked.map(|_| ()).map_err(|error| explained(clause, error))
    }

    /// A join; what a filter says of one side alone runs before it.
    fn join(
        &mut self,
        step: &Step,
        left: usize,
        right: usize,
        on: &Clause<Vec<JoinKey>>,
        kind: JoinKind,
        filter: &mut Option<Expr>,
    ) -> QueryResult<usize> {
        let (left, right, keys) = self.join_keys(step, left, right, on)?;
        let spec = self.join_columns(left, right, on, keys, kind)?;
        let schema = self.join_schema(left, right, &spec)?;
        if let (Some(expr), Some(clause)) = (filter.take(), &step.filter) {
            // Against the joined columns, so that errors speak of those.
            let checked = expr.check_predicate(&schema);
            checked.map_err(|error| explained(clause, error))?;
            let (mut parts, mut rest) = (Vec::new(), Vec::new());
            conjuncts(expr, &mut parts);
            let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
            for part in parts {
                match side_of(&part, &spec) {
                    Some(true) => of_left.push(part),
                    Some(false) => of_right.push(part),
                    None => rest.push(part),
                }
            }
            *filter = conjunction(rest);
            let below = |name: &str| spec.origin(name).map_or(name, |(_, own)| own).to_owned();
            let left = self.filtered(step, left, of_left, &below);
            let right = self.filtered(step, right, of_right, &below);
            return Ok(self.add(&step.name, Operation::Join(spec), vec![left, right], schema));
        }
        Ok(self.add(&step.name, Operation::Join(spec), vec![left, right], schema))
    }

    fn filtered(
        &mut self,
        step: &Step,
        node: usize,
        parts: Vec<Expr>,
        name: &impl Fn(&str) -> String,
    ) -> usize {
        match conjunction(parts) {
            None => node,
            Some(expr) => {
                let schema = self.schema(node).clone();
                let filter = Operation::Filter(renamed(&expr, name));
                self.add(&step.name, filter, vec![node], schema)
            }
        }
    }

    /// The keys of both sides in one type each. Integers of different types meet in one that has
    /// both: `u64` if neither has a sign, otherwise `i64`, in two parts where one side is a `u64`.
    fn join_keys(
        &mut self,
        step: &Step,
        mut left: usize,
        mut right: usize,
        on: &Clause<Vec<JoinKey>>,
    ) -> QueryResult<KeyedSides> {
        let mut keys = Vec::new();
        for JoinKey { left: a, right: b } in &on.value {
            let field = |node: usize, name: &str, side: &str| {
                self.schema(node)
                    .field(name)
                    .cloned()
                    .map_err(|error| on.about(name, format!("{error}; that is the {side} table")))
            };
            let (of_left, of_right) = (field(left, a, "left")?, field(right, b, "right")?);
            if of_left.data_type == of_right.data_type {
                keys.push((a.clone(), b.clone()));
                continue;
            }
            if !of_left.data_type.is_integer() || !of_right.data_type.is_integer() {
                let (a_type, b_type) = (of_left.data_type, of_right.data_type);
                let message = format!("{a:?} is {a_type} and {b:?} is {b_type}; give one type");
                return Err(on.about(a, format!("{message} to both with --type")));
            }
            let meeting = Meeting::of(of_left.data_type, of_right.data_type);
            let (key_left, left_keys) = self.meet(step, left, &of_left, meeting)?;
            let (key_right, right_keys) = self.meet(step, right, &of_right, meeting)?;
            (left, right) = (key_left, key_right);
            keys.extend(left_keys.into_iter().zip(right_keys));
        }
        Ok((left, right, keys))
    }

    /// The node with an integer as `meeting` says, in columns of their own, and their names.
    fn meet(
        &mut self,
        step: &Step,
        node: usize,
        field: &Field,
        meeting: Meeting,
    ) -> QueryResult<(usize, Vec<String>)> {
        if meeting.is_met_by(field.data_type) {
            return Ok((node, vec![field.name.clone()]));
        }
        let mut names = Vec::new();
        let schema = self.schema(node).clone();
        let mut columns: Vec<_> =
            schema.fields().iter().map(|own| (own.name.clone(), col(&own.name))).collect();
        for (part, expr) in meeting.parts(&field.name) {
            let name = format!("{HIDDEN}{part}{}", field.name);
            // The column may be another key already.
            if schema.field(&name).is_err() {
                columns.push((name.clone(), expr));
            }
            names.push(name);
        }
        let schema = fields_of(&columns, &schema)?;
        Ok((self.add(&step.name, Operation::Project(columns), vec![node], schema), names))
    }

    /// Which columns a join has. A key of one name on both sides is one column; another right
    /// column whose name is taken gets `_right` appended.
    fn join_columns(
        &self,
        left: usize,
        right: usize,
        on: &Clause<Vec<JoinKey>>,
        keys: Vec<(String, String)>,
        kind: JoinKind,
    ) -> QueryResult<JoinSpec> {
        let is_shared = |name: &str| {
            kind != JoinKind::Full
                && on.value.iter().any(|key| key.left == name && key.right == name)
        };
        let own = |field: &&Field| !field.name.starts_with(HIDDEN);
        let of_left = self.schema(left).fields().iter().filter(own);
        // Of a right join, the right key is there in every row.
        let left_columns: Vec<(String, String)> =
            of_left.map(|field| (field.name.clone(), field.name.clone())).collect();
        let mut spec = JoinSpec { kind, on: keys, left: left_columns, right: Vec::new() };
        if kind.is_left_only() {
            return Ok(spec);
        }
        let taken = |spec: &JoinSpec, name: &str| spec.origin(name).is_some();
        for field in self.schema(right).fields().iter().filter(own) {
            let name = &field.name;
            if is_shared(name) {
                if kind == JoinKind::Right {
                    spec.left.retain(|(_, output)| output != name);
                    spec.right.push((name.clone(), name.clone()));
                }
                continue;
            }
            let mut output = name.clone();
            if taken(&spec, &output) {
                output.push_str("_right");
            }
            if taken(&spec, &output) {
                let message = format!("two columns of the join would be called {output:?}");
                return Err(QueryError::plan(format!("{message}; rename one with a select first")));
            }
            spec.right.push((name.clone(), output));
        }
        Ok(spec)
    }

    fn join_schema(&self, left: usize, right: usize, spec: &JoinSpec) -> QueryResult<Schema> {
        let mut fields = Vec::new();
        let sides = [
            (left, &spec.left, spec.kind.keeps_right()),
            (right, &spec.right, spec.kind.keeps_left()),
        ];
        for (node, columns, missing) in sides {
            for (name, output) in columns {
                let field = self.schema(node).field(name)?;
                let nullable = field.nullable || missing;
                fields.push(Field { name: output.clone(), nullable, ..field.clone() });
            }
        }
        Ok(Schema::new(fields)?)
    }

    fn set(&mut self, step: &Step, left: usize, right: usize, kind: SetKind) -> QueryResult<usize> {
        let (a, b) = (self.schema(left), self.schema(right));
        if a.len() != b.len() {
            let (expected, found) = (a.len(), b.len());
            return Err(QueryError::plan(format!(
                "one table has {expected} columns and the other {found}; a plan (xlog run) can \
                 select the same columns of both in steps before"
            )));
        }
        let mut fields = Vec::new();
        for (a, b) in a.fields().iter().zip(b.fields()) {
            if a.data_type != b.data_type {
                return Err(QueryError::plan(format!(
                    "column {:?} is {} and {:?} in its place is {}; give both one type",
                    a.name, a.data_type, b.name, b.data_type
                )));
            }
            fields.push(Field { nullable: a.nullable || b.nullable, ..a.clone() });
        }
        let schema = Schema::new(fields)?;
        Ok(self.add(&step.name, Operation::Set(kind), vec![left, right], schema))
    }

    /// Groups and figures; what is no column by itself is worked out first.
    fn group(&mut self, step: &Step, node: usize) -> QueryResult<usize> {
        let schema = self.schema(node).clone();
        let (mut columns, mut keys): (Vec<(String, Expr)>, Vec<String>) = Default::default();
        if let Some(clause) = &step.group {
            for Output { expr, name } in &clause.value {
                expr.check(&schema).map_err(|error| explained(clause, error))?;
                if keys.contains(name) {
                    return Err(clause.about(name, format!("{name:?} is grouped by twice")));
                }
                keys.push(name.clone());
                columns.push((name.clone(), expr.clone()));
            }
        }
        let mut aggregates = Vec::new();
        if let Some(clause) = &step.aggregates {
            for AggregateOutput { function, of, name } in &clause.value {
                let column = match of {
                    None => None,
                    Some(expr) => {
                        expr.check(&schema).map_err(|error| explained(clause, error))?;
                        Some(column_for(expr, &mut columns))
                    }
                };
                aggregates.push(Aggregate { function: *function, column, name: name.clone() });
            }
        }
        let plain = columns.iter().all(|(name, expr)| *expr == col(name));
        let mut node = node;
        if !plain {
            let fields = fields_of(&columns, &schema)?;
            node = self.add(&step.name, Operation::Project(columns), vec![node], fields);
        }
        let schema = self.schema(node).clone();
        let mut fields = Vec::new();
        for key in &keys {
            fields.push(schema.field(key)?.clone());
        }
        for aggregate in &aggregates {
            let field = aggregate.field(&schema);
            let clause = step.aggregates.as_ref();
            fields.push(field.map_err(|error| match clause {
                Some(clause) => explained(clause, error),
                None => error.into(),
            })?);
        }
        let schema = Schema::new(fields)?;
        Ok(self.add(&step.name, Operation::Group { keys, aggregates }, vec![node], schema))
    }

    /// Selects, makes distinct, sorts and cuts.
    fn arrange(&mut self, step: &Step, node: usize) -> QueryResult<usize> {
        let before = self.schema(node).clone();
        let selected = match &step.select {
            None => None,
            Some(clause) => Some(self.selected(clause, &before)?),
        };
        let after = match &selected {
            None => before.clone(),
            Some(columns) => fields_of(columns, &before)?,
        };
        let keys = step.sort.as_ref().map(|clause| clause.value.as_slice()).unwrap_or_default();
        // A column that is not selected can be sorted by, if it is there before.
        let late = keys.iter().all(|key| after.index_of(&key.column).is_ok());
        if let Some(clause) = &step.sort {
            let known = if late || step.distinct { &after } else { &before };
            for key in keys {
                let found = known.index_of(&key.column);
                found.map_err(|error| clause.about(&key.column, error.to_string()))?;
            }
        }
        let mut node = node;
        let first = step.limit.map(|limit| limit.saturating_add(step.offset));
        let is_other = |key: &SortKey| {
            let own = |(name, expr): &&(String, Expr)| *name == key.column && *expr != col(name);
            selected.iter().flatten().any(|column| own(&column))
        };
        match selected {
            // One key is a column as it was, another means what is selected under its name: both
            // are there while rows are sorted.
            Some(mut columns) if !late && keys.iter().any(is_other) => {
                let shown: Vec<_> =
                    columns.iter().map(|(name, _)| (name.clone(), col(name))).collect();
                for key in keys {
                    if after.index_of(&key.column).is_err() {
                        columns.push((key.column.clone(), col(&key.column)));
                    }
                }
                let both = fields_of(&columns, &before)?;
                node = self.add(&step.name, Operation::Project(columns), vec![node], both);
                node = self.sorted(step, node, keys, first);
                node = self.add(&step.name, Operation::Project(shown), vec![node], after.clone());
            }
            selected => {
                if !late {
                    node = self.sorted(step, node, keys, first);
                }
                if let Some(columns) = selected {
                    node = self.add(
                        &step.name,
                        Operation::Project(columns),
                        vec![node],
                        after.clone(),
                    );
                }
            }
        }
        if step.distinct {
            node = self.add(&step.name, Operation::Distinct, vec![node], after.clone());
        }
        if late && !keys.is_empty() {
            node = self.sorted(step, node, keys, first);
        }
        if step.offset > 0 || step.limit.is_some() {
            let count = step.limit.unwrap_or(u64::MAX);
            let window = Operation::Limit { offset: step.offset, count };
            node = self.add(&step.name, window, vec![node], after);
        }
        Ok(node)
    }

    fn sorted(&mut self, step: &Step, node: usize, keys: &[SortKey], first: Option<u64>) -> usize {
        let schema = self.schema(node).clone();
        let sort = Operation::Sort { keys: keys.to_vec(), first };
        self.add(&step.name, sort, vec![node], schema)
    }

    fn selected(
        &self,
        clause: &Clause<Vec<Selected>>,
        schema: &Schema,
    ) -> QueryResult<Vec<(String, Expr)>> {
        let mut columns: Vec<(String, Expr)> = Vec::new();
        for item in &clause.value {
            match item {
                Selected::All => {
                    let all = schema.fields().iter().map(|field| &field.name);
                    columns.extend(all.map(|name| (name.clone(), col(name))));
                }
                Selected::One(Output { expr, name }) => {
                    expr.check(schema).map_err(|error| explained(clause, error))?;
                    columns.push((name.clone(), expr.clone()));
                }
            }
        }
        for (index, (name, _)) in columns.iter().enumerate() {
            if columns[..index].iter().any(|(earlier, _)| earlier == name) {
                let message = format!("two columns are called {name:?}; name one with \"as\"");
                return Err(clause.about(name, message));
            }
        }
        Ok(columns)
    }
}

/// How integers of two types are made comparable, with no value that does not fit.
#[derive(Clone, Copy)]
enum Meeting {
    U64,
    I64,
    /// Both parts of a division by two as `i64`: each fits, and below zero, where no `u64` is, one
    /// of them is below zero too.
    Halves,
}

impl Meeting {
    fn of(a: DataType, b: DataType) -> Self {
        match (a.is_unsigned() && b.is_unsigned(), [a, b].contains(&DataType::U64)) {
            (true, _) => Self::U64,
            (false, true) => Self::Halves,
            (false, false) => Self::I64,
        }
    }

    /// Whether a column of that type is it already.
    fn is_met_by(self, data_type: DataType) -> bool {
        match self {
            Self::U64 => data_type == DataType::U64,
            Self::I64 => data_type == DataType::I64,
            Self::Halves => false,
        }
    }

    /// The parts of a column, each with what tells its name from others.
    fn parts(self, name: &str) -> Vec<(&'static str, Expr)> {
        // A difference of integers is an i64.
        let signed = |expr: Expr| expr - lit(0i64);
        match self {
            Self::U64 => vec![("u", col(name) + lit(0u64))],
            Self::I64 => vec![("i", signed(col(name)))],
            Self::Halves => {
                vec![("%", signed(col(name) % lit(2i64))), ("/", signed(col(name) / lit(2i64)))]
            }
        }
    }
}

/// The column that an expression of an aggregate becomes; the same one for the same expression.
fn column_for(expr: &Expr, columns: &mut Vec<(String, Expr)>) -> String {
    if let Some((name, _)) = columns.iter().find(|(_, other)| other == expr) {
        return name.clone();
    }
    let mut name = match expr {
        Expr::Column(name) => name.clone(),
        other => other.to_string(),
    };
    while columns.iter().any(|(other, _)| *other == name) {
        name.push('_');
    }
    columns.push((name.clone(), expr.clone()));
    name
}

/// The columns that expressions make.
fn fields_of(columns: &[(String, Expr)], schema: &Schema) -> QueryResult<Schema> {
    let mut fields = Vec::new();
    for (name, expr) in columns {
        let checked = expr.check(schema)?;
        let (data_type, nullable) = (checked.data_type(), checked.is_nullable());
        fields.push(Field { name: name.clone(), data_type, nullable });
    }
    Ok(Schema::new(fields)?)
}

/// The side of a join that a part of a filter can run on before it: left or right.
fn side_of(part: &Expr, spec: &JoinSpec) -> Option<bool> {
    // What overflows in a row that the join drops is no error.
    if calculates(part) {
        return None;
    }
    let (mut left, mut right, mut any) = (true, true, false);
    columns_of(part, &mut |name| {
        any = true;
        match spec.origin(name) {
            Some((of_left, _)) => {
                left &= of_left;
                right &= !of_left;
            }
            None => (left, right) = (false, false),
        }
    });
    // A side whose rows may be replaced by missing values is filtered behind the join.
    match (any && left, any && right) {
        (true, _) if !spec.kind.keeps_right() => Some(true),
        (_, true) if !spec.kind.keeps_left() => Some(false),
        _ => None,
    }
}

/// Whether any part of an expression is calculated.
fn calculates(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Literal(_) | Expr::Null(_) => false,
        Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) => calculates(a) || calculates(b),
        Expr::Not(a) | Expr::IsNull(a) | Expr::IsNotNull(a) | Expr::InList(a, _) => calculates(a),
        _ => true,
    }
}

/// An error of an expression, at the place of its clause that it is about.
fn explained<T>(clause: &Clause<T>, error: RelationalError) -> QueryError {
    match &error {
        RelationalError::UnknownColumn { name, .. } => clause.about(name, error.to_string()),
        _ => QueryError::plan(format!("{}: {error}", clause.name)),
    }
}
