//! Plans in files.
//!
//! ```toml
//! [input.orders]
//! files = "orders.csv"
//!
//! [input.customers]
//! files = ["customers.csv"]
//! types = { id = "i64" }
//!
//! [step.large]
//! from = "orders"
//! where = "amount > 100"
//!
//! [step.totals]
//! from = "large"
//! join = "customers"
//! on = "customer_id=id"
//! group = "region"
//! agg = "sum(amount) as total"
//! sort = "total:desc"
//! write = "totals.parquet"
//! ```
//!
//! A step reads inputs and other steps by their names, in whatever order they stand in the file. A
//! step that nobody reads and that writes no file is the plan's result.

use std::{collections::BTreeSet, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use xlog_relational::JoinKind;

use super::{Clause, Combination, Query, SetKind, Step};
use crate::{
    error::{QueryError, QueryResult},
    nearest::nearest,
    parse::{self, ParseError},
};

/// A plan as it stands in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanFile {
    /// The tables that are read.
    pub inputs: Vec<PlanInput>,
    /// What is made of them. Its outputs are those of [`outputs`](Self::outputs), in that order.
    pub query: Query,
    /// Where the results go.
    pub outputs: Vec<PlanOutput>,
}

/// A table that is read from files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanInput {
    /// What steps call it.
    pub name: String,
    /// Names of files, or patterns of them.
    pub files: Vec<String>,
    /// The format, where the names do not say it.
    pub format: Option<String>,
    /// Types of columns.
    pub types: Vec<(String, String)>,
    /// What stands between the fields of CSV.
    pub delimiter: Option<String>,
    /// What stands around the fields of CSV; the word none for nothing.
    pub quote: Option<String>,
    /// Whether the first line of CSV names the columns.
    pub header: bool,
    /// Texts that stand for no value.
    pub nulls: Vec<String>,
}

/// Where a result goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanOutput {
    /// The file; standard output without one.
    pub file: Option<String>,
    /// The format, where the file's name does not say it.
    pub format: Option<String>,
}

impl PlanFile {
    /// Reads a plan; `name` is the file's, for errors.
    pub fn read(name: &str, text: &str) -> QueryResult<Self> {
        let file = File { name, text };
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            file.error(at, format!("this is no TOML: {}", error.message()))
        })?;
        let mut plan = Self::default();
        let (mut steps, mut outputs) = (Vec::new(), Vec::new());
        let known = ["input", "step"];
        for (key, value) in root.get_ref() {
            match key.get_ref().as_ref() {
                "input" => {
                    for (name, value) in file.table(value, "[input.NAME]")? {
                        plan.inputs.push(file.input(name.get_ref(), value)?);
                    }
                }
                "step" => {
                    for (name, value) in file.table(value, "[step.NAME]")? {
                        let (step, output) = file.step(name.get_ref(), value)?;
                        steps.push((name.span().start, step));
                        outputs.push(output);
                    }
                }
                _ => return Err(file.unknown(key, &known)),
            }
        }
        if steps.is_empty() {
            return Err(file.error(0, "there is no step; begin one with [step.NAME]".to_owned()));
        }
        let read: BTreeSet<&str> = steps.iter().flat_map(|(_, step)| reads(step)).collect();
        for ((_, step), output) in steps.iter().zip(outputs) {
            let output = match output {
                Some(output) => output,
                None if read.contains(step.name.as_str()) => continue,
                None => PlanOutput::default(),
            };
            plan.query.outputs.push(step.name.clone());
            plan.outputs.push(output);
        }
        if plan.outputs.iter().filter(|output| output.file.is_none()).count() > 1 {
            let message = "several steps are read by nobody and write no file; give all but one \
                           of them a \"write\"";
            return Err(file.error(0, message.to_owned()));
        }
        let mut written = BTreeSet::new();
        for output in &plan.outputs {
            let name = output.file.as_deref().unwrap_or("-");
            if !written.insert(name) {
                let place = if name == "-" { "standard output" } else { name };
                let message = format!("two steps write {place}; give each a file of its own");
                return Err(file.error(0, message));
            }
        }
        plan.query.steps = file.ordered(steps)?;
        Ok(plan)
    }
}

/// The tables that a step reads.
fn reads(step: &Step) -> impl Iterator<Item = &str> {
    let with = match &step.combination {
        Some(Combination::Join { with, .. } | Combination::Set { with, .. }) => Some(with),
        None => None,
    };
    [Some(&step.from), with].into_iter().flatten().map(String::as_str)
}

/// A file that is being read.
struct File<'f> {
    name: &'f str,
    text: &'f str,
}

type Value<'v> = Spanned<DeValue<'v>>;

impl File<'_> {
    /// An error at a byte of the file.
    fn error(&self, at: usize, message: String) -> QueryError {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let end = self.text[start..].find('\n').map_or(self.text.len(), |end| start + end);
        let column = before[start..].chars().count() + 1;
        let error = ParseError::new(message, &self.text[start..end], before.len() - start);
        QueryError::Parse { clause: format!("{}, line {line}, column {column}", self.name), error }
    }

    fn unknown(&self, key: &Spanned<std::borrow::Cow<'_, str>>, known: &[&str]) -> QueryError {
        let name = key.get_ref();
        let meant = nearest(name, known.iter().copied());
        let meant = meant.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
        let message = format!("{name:?} is not known here{meant}; there are {}", known.join(", "));
        self.error(key.span().start, message)
    }

    fn wrong(&self, value: &Value<'_>, expected: &str) -> QueryError {
        let message = format!("expected {expected}, found {}", value.get_ref().type_str());
        self.error(value.span().start, message)
    }

    fn table<'v>(&self, value: &'v Value<'v>, expected: &str) -> QueryResult<&'v DeTable<'v>> {
        value.get_ref().as_table().ok_or_else(|| self.wrong(value, expected))
    }

    fn string(&self, value: &Value<'_>) -> QueryResult<String> {
        let text = value.get_ref().as_str().ok_or_else(|| self.wrong(value, "a text"))?;
        Ok(text.to_owned())
    }

    fn boolean(&self, value: &Value<'_>) -> QueryResult<bool> {
        value.get_ref().as_bool().ok_or_else(|| self.wrong(value, "true or false"))
    }

    fn count(&self, value: &Value<'_>) -> QueryResult<u64> {
        let number = value.get_ref().as_integer().and_then(|number| {
            u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
        });
        number.ok_or_else(|| self.wrong(value, "a whole number, 0 or more"))
    }

    /// A text, or a list of texts.
    fn strings(&self, value: &Value<'_>) -> QueryResult<Vec<String>> {
        match value.get_ref().as_array() {
            Some(items) => items.iter().map(|item| self.string(item)).collect(),
            None => Ok(vec![self.string(value)?]),
        }
    }

    /// A clause: a text, or a list of texts that stand for one with commas between them.
    fn clause<T>(
        &self,
        value: &Value<'_>,
        read: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> QueryResult<Clause<T>> {
        let text = self.strings(value)?.join(", ");
        let place = self.place(value.span());
        Clause::read(place, text, read)
    }

    fn place(&self, span: Range<usize>) -> String {
        match self.error(span.start, String::new()) {
            QueryError::Parse { clause, .. } => clause,
            _ => self.name.to_owned(),
        }
    }

    fn input(&self, name: &str, value: &Value<'_>) -> QueryResult<PlanInput> {
        const KNOWN: [&str; 7] =
            ["files", "format", "types", "delimiter", "quote", "header", "null"];
        let mut input = PlanInput { name: name.to_owned(), header: true, ..PlanInput::default() };
        for (key, value) in self.table(value, "a table with the input's files")? {
            match key.get_ref().as_ref() {
                "files" => input.files = self.strings(value)?,
                "format" => input.format = Some(self.string(value)?),
                "types" => {
                    for (column, data_type) in self.table(value, "a table of types")? {
                        input.types.push((column.get_ref().to_string(), self.string(data_type)?));
                    }
                }
                "delimiter" => input.delimiter = Some(self.string(value)?),
                "quote" => input.quote = Some(self.string(value)?),
                "header" => input.header = self.boolean(value)?,
                "null" => input.nulls = self.strings(value)?,
                _ => return Err(self.unknown(key, &KNOWN)),
            }
        }
        if input.files.is_empty() {
            let message = format!("input {name:?} names no files; give it \"files\"");
            return Err(self.error(value.span().start, message));
        }
        Ok(input)
    }

    fn step(&self, name: &str, value: &Value<'_>) -> QueryResult<(Step, Option<PlanOutput>)> {
        const KNOWN: [&str; 19] = [
            "from",
            "join",
            "on",
            "kind",
            "union",
            "intersect",
            "except",
            "all",
            "where",
            "group",
            "agg",
            "having",
            "select",
            "distinct",
            "sort",
            "limit",
            "offset",
            "write",
            "format",
        ];
        let mut step = Step { name: name.to_owned(), ..Step::default() };
        let (mut on, mut kind, mut all, mut write, mut format) = (None, None, None, None, None);
        let mut second: Option<(&str, String, usize)> = None;
        for (key, value) in self.table(value, "a table with the step's clauses")? {
            match key.get_ref().as_ref() {
                "from" => step.from = self.string(value)?,
                which @ ("join" | "union" | "intersect" | "except") => {
                    if let Some((other, ..)) = second {
                        let message = format!("a step has {which:?} or {other:?}, not both");
                        return Err(self.error(key.span().start, message));
                    }
                    second = Some((which, self.string(value)?, key.span().start));
                }
                "on" => on = Some(self.clause(value, parse::join_keys)?),
                "kind" => kind = Some((self.join_kind(value)?, key.span().start)),
                "all" => all = Some((self.boolean(value)?, key.span().start)),
                "where" => step.filter = Some(self.clause(value, parse::expression)?),
                "group" => step.group = Some(self.clause(value, parse::outputs)?),
                "agg" => step.aggregates = Some(self.clause(value, parse::aggregates)?),
                "having" => step.having = Some(self.clause(value, parse::expression)?),
                "select" => step.select = Some(self.clause(value, parse::selection)?),
                "distinct" => step.distinct = self.boolean(value)?,
                "sort" => step.sort = Some(self.clause(value, parse::sort_keys)?),
                "limit" => step.limit = Some(self.count(value)?),
                "offset" => step.offset = self.count(value)?,
                "write" => write = Some(self.string(value)?),
                "format" => format = Some(self.string(value)?),
                _ => return Err(self.unknown(key, &KNOWN)),
            }
        }
        let at = value.span().start;
        if step.from.is_empty() {
            let message = format!("step {name:?} reads nothing; give it \"from\"");
            return Err(self.error(at, message));
        }
        let is_join = matches!(second, Some(("join", ..)));
        let misplaced = [
            (on.is_some() && !is_join).then_some((at, "\"on\" goes with \"join\"")),
            kind.filter(|_| !is_join).map(|(_, at)| (at, "\"kind\" goes with \"join\"")),
            all.filter(|_| is_join || second.is_none())
                .map(|(_, at)| (at, "\"all\" goes with \"union\", \"intersect\" or \"except\"")),
        ];
        if let Some((at, message)) = misplaced.into_iter().flatten().next() {
            return Err(self.error(at, message.to_owned()));
        }
        let all = all.is_some_and(|(all, _)| all);
        step.combination = match second {
            None => None,
            Some(("join", with, at)) => {
                let kind = kind.map_or(JoinKind::Inner, |(kind, _)| kind);
                let Some(on) = on else {
                    let message = "a join needs \"on\": its keys".to_owned();
                    return Err(self.error(at, message));
                };
                Some(Combination::Join { with, on, kind })
            }
            Some((which, with, _)) => {
                let kind = match which {
                    "union" => SetKind::Union { all },
                    "intersect" => SetKind::Intersect { all },
                    _ => SetKind::Except { all },
                };
                Some(Combination::Set { with, kind })
            }
        };
        let output =
            (write.is_some() || format.is_some()).then_some(PlanOutput { file: write, format });
        Ok((step, output))
    }

    fn join_kind(&self, value: &Value<'_>) -> QueryResult<JoinKind> {
        let text = self.string(value)?;
        JoinKind::ALL.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
            let known: Vec<String> = JoinKind::ALL.iter().map(ToString::to_string).collect();
            let message = format!("{text:?} is no kind of join; there are {}", known.join(", "));
            self.error(value.span().start, message)
        })
    }

    /// The steps, each after those it reads.
    fn ordered(&self, steps: Vec<(usize, Step)>) -> QueryResult<Vec<Step>> {
        let mut waiting = steps;
        waiting.sort_by_key(|(at, _)| *at);
        let mut ordered: Vec<Step> = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let names: BTreeSet<&str> = waiting.iter().map(|(_, step)| &*step.name).collect();
            let ready = waiting
                .iter()
                .position(|(_, step)| reads(step).all(|table| !names.contains(table)));
            let Some(ready) = ready else {
                let (at, step) = &waiting[0];
                let message =
                    format!("step {:?} reads its own result, by way of others", step.name);
                return Err(self.error(*at, message));
            };
            ordered.push(waiting.remove(ready).1);
        }
        Ok(ordered)
    }
}
