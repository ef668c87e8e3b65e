//! The same query at every size of batches, against an evaluation row by row.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use proptest::prelude::*;
use xlog_cuda::{
    CudaDevice,
    device_runtime::{GlobalDeviceBudget, ResourceStack},
};
use xlog_io::{BatchReader, FileError, FileResult, ReadProgress};
use xlog_relational::{
    Aggregate, DataType, Engine, Field, JoinKind, Scalar, SortKey, col,
    exec::CancelToken,
    reference::{self, HostColumn, Relation},
    strategies,
};

mod failures;

use super::*;
use crate::{
    parse,
    plan::{PlanFile, Query},
};

/// A table in memory, handed out in batches.
struct MemorySource {
    name: String,
    batch: RecordBatch,
    batch_rows: usize,
    /// What the reader answers at the end.
    end: Option<FileError>,
}

struct MemoryReader {
    batch: RecordBatch,
    batch_rows: usize,
    start: usize,
    end: Option<FileError>,
}

impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    fn open(&self, columns: &[String]) -> FileResult<Box<dyn BatchReader>> {
        let places: Vec<usize> = (0..self.batch.num_columns())
            .filter(|place| columns.contains(self.batch.schema().field(*place).name()))
            .collect();
        Ok(Box::new(MemoryReader {
            batch: self.batch.project(&places).unwrap(),
            batch_rows: self.batch_rows,
            start: 0,
            end: self.end.clone(),
        }))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.batch.num_rows() as u64)
    }
}

impl BatchReader for MemoryReader {
    fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    fn next_batch(&mut self) -> FileResult<Option<RecordBatch>> {
        let length = self.batch_rows.min(self.batch.num_rows() - self.start);
        if length == 0 {
            return self.end.take().map_or(Ok(None), Err);
        }
        self.start += length;
        Ok(Some(self.batch.slice(self.start - length, length)))
    }

    fn progress(&self) -> ReadProgress {
        let total = self.batch.num_rows() as u64;
        ReadProgress { bytes_read: self.start as u64, bytes_total: Some(total) }
    }
}

/// Keeps what it is given; tells whether it was finished.
#[derive(Clone, Default)]
struct MemorySink(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    finished: bool,
}

impl Sink for MemorySink {
    fn begin(&mut self, schema: SchemaRef) -> FileResult<()> {
        self.0.lock().schema = Some(schema);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> FileResult<bool> {
        self.0.lock().batches.push(batch.clone());
        Ok(true)
    }

    fn finish(self: Box<Self>) -> FileResult<()> {
        self.0.lock().finished = true;
        Ok(())
    }
}

impl MemorySink {
    fn relation(&self) -> Relation {
        let kept = self.0.lock();
        let empty = RecordBatch::new_empty(kept.schema.clone().unwrap());
        let mut all = Relation::from_batch(&empty).unwrap();
        for batch in &kept.batches {
            all = reference::concat(&all, &Relation::from_batch(batch).unwrap()).unwrap();
        }
        all
    }
}

fn engine() -> Engine {
    Engine::new(Arc::new(CudaDevice::host())).unwrap()
}

fn options(batch_rows: Option<usize>) -> RunOptions {
    RunOptions { memory: 1 << 30, streams: 3, threads: 2, batch_rows }
}

fn source(name: &str, relation: &Relation, batch_rows: usize) -> Arc<dyn Source> {
    let batch = relation.to_batch().unwrap();
    Arc::new(MemorySource { name: name.to_owned(), batch, batch_rows, end: None })
}

/// The result of the plan whose steps are `text`, read in batches of that many rows.
fn result_of(
    text: &str,
    tables: &[(&str, &Relation)],
    batch_rows: Option<usize>,
) -> QueryResult<Relation> {
    let query = query(text);
    let size = batch_rows.unwrap_or(usize::MAX);
    let sources: Vec<_> = tables.iter().map(|(name, table)| source(name, table, size)).collect();
    let sinks: Vec<MemorySink> = query.outputs.iter().map(|_| MemorySink::default()).collect();
    let boxed = sinks.iter().map(|sink| Box::new(sink.clone()) as Box<dyn Sink>).collect();
    let (cancel, monitor) = (CancelToken::new(), Arc::new(Monitor::default()));
    run(&engine(), &query, &sources, boxed, &options(batch_rows), &cancel, &monitor)?;
    assert!(sinks.iter().all(|sink| sink.0.lock().finished));
    Ok(sinks[0].relation())
}

fn query(text: &str) -> Query {
    PlanFile::read("plan", text).unwrap_or_else(|error| panic!("{error}")).query
}

/// Whether the numbers of both are the same, but for the rounding of sums.
fn nearly(found: &Relation, expected: &Relation) -> bool {
    let rounded = |relation: &Relation| {
        let columns = relation.columns().iter().map(|column| {
            let values = column.values.iter().map(|value| match value {
                Some(Scalar::F64(value)) => {
                    Some(Scalar::F64(format!("{value:.6e}").parse::<f64>().unwrap()))
                }
                other => other.clone(),
            });
            let field = column.field.clone().nullable();
            HostColumn { field, values: values.collect() }
        });
        Relation::new(columns.collect()).unwrap()
    };
    rounded(found).same_rows(&rounded(expected))
}

/// Runs at every size of batches and compares.
#[track_caller]
fn check(text: &str, tables: &[(&str, &Relation)], expected: &Relation, in_order: bool) {
    for batch_rows in [Some(1), Some(7), Some(1000), None] {
        let found = result_of(text, tables, batch_rows).unwrap_or_else(|error| panic!("{error}"));
        let same = match in_order {
            true => found.same_in_order(expected),
            false => nearly(&found, expected),
        };
        assert!(same, "{text}\nbatches of {batch_rows:?}\n{found:?}\n{expected:?}");
    }
}

/// Orders with every type that matters, some values missing; a step of a fixed generator each.
fn orders(rows: usize) -> Relation {
    let mut state = 7u64;
    let mut next = move |most: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut column = |name: &str, data_type, value: &mut dyn FnMut(u64) -> Scalar, most| {
        let values = (0..rows).map(|_| (next(9) > 0).then(|| value(next(most)))).collect();
        HostColumn { field: Field::new(name, data_type).nullable(), values }
    };
    let text = |n: u64| Scalar::from(format!("city {n}"));
    Relation::new(vec![
        column("customer", DataType::I64, &mut |n| Scalar::I64(n as i64), 20),
        column("amount", DataType::I64, &mut |n| Scalar::I64(n as i64 - 50), 200),
        column("price", DataType::F64, &mut |n| Scalar::F64(n as f64 / 4.0), 40),
        column("city", DataType::Utf8, &mut |n| text(n), 6),
        column("day", DataType::Date32, &mut |n| Scalar::Date32(n as i32), 9),
    ])
    .unwrap()
}

fn customers() -> Relation {
    let ids = (0..24).map(|id| (id != 5).then_some(Scalar::I32(id * 2 % 25))).collect();
    let regions = (0..24).map(|id| Some(Scalar::from(["north", "south", "east"][id % 3])));
    Relation::new(vec![
        HostColumn { field: Field::new("id", DataType::I32).nullable(), values: ids },
        HostColumn { field: Field::new("region", DataType::Utf8), values: regions.collect() },
    ])
    .unwrap()
}

const FROM: &str = "[step.s]\nfrom = \"orders\"\n";

#[test]
fn rows_are_filtered_selected_sorted_and_cut() {
    let orders = orders(500);
    let tables = [("orders", &orders)];
    let large = reference::filter(&orders, &parse::expression("amount > 100").unwrap()).unwrap();
    check(&format!("{FROM}where = \"amount > 100\""), &tables, &large, true);
    let columns = [("city", col("city")), ("gross", col("amount") * 2i64)];
    let gross = reference::project(&large, &columns).unwrap();
    let text = format!("{FROM}where = \"amount > 100\"\nselect = \"city, amount*2 as gross\"");
    check(&text, &tables, &gross, true);
    check(
        &format!("{text}\noffset = 3\nlimit = 9"),
        &tables,
        &reference::limit(&gross, 3, 9),
        true,
    );
    let keys = [SortKey::new("gross").descending(), SortKey::new("city").nulls_first()];
    let sorted = reference::sort(&gross, &keys).unwrap();
    let text = format!("{text}\nsort = \"gross:desc,city:nulls-first\"");
    check(&text, &tables, &sorted, true);
    check(&format!("{text}\nlimit = 5"), &tables, &reference::limit(&sorted, 0, 5), true);
    check(&format!("{text}\nlimit = 0"), &tables, &reference::limit(&sorted, 0, 0), true);
    let by_price = reference::sort(&orders, &[SortKey::new("price")]).unwrap();
    let cities = reference::project(&by_price, &[("city", col("city"))]).unwrap();
    check(&format!("{FROM}select = \"city\"\nsort = \"price\""), &tables, &cities, true);
}

#[test]
fn figures_of_groups_are_put_together() {
    let orders = orders(700);
    let tables = [("orders", &orders)];
    let doubled = reference::project(
        &orders,
        &[
            ("city", col("city")),
            ("day", col("day")),
            ("amount", col("amount")),
            ("price", col("price")),
            ("both", col("amount") * col("price")),
        ],
    )
    .unwrap();
    let figures = [
        Aggregate::count_rows().named("n"),
        Aggregate::count("amount"),
        Aggregate::sum("amount"),
        Aggregate::mean("amount").named("mean"),
        Aggregate::mean("price").named("mean price"),
        Aggregate::min("price"),
        Aggregate::max("city").named("last"),
        Aggregate::sum("both"),
        Aggregate::count_distinct("price").named("prices"),
        Aggregate::count_distinct("day").named("days"),
    ];
    let text = "agg = ['count(*) as n', 'count(amount) as count_amount', \
                'sum(amount) as sum_amount', 'avg(amount) as mean', \
                'mean(price) as \"mean price\"', \
                'min(price) as min_price', 'max(city) as last', 'sum(amount * price) as sum_both', \
                'count(distinct price) as prices', 'count(distinct day) as days']";
    for keys in [&["city"][..], &["city", "day"], &[]] {
        let expected = reference::group_by(&doubled, keys, &figures).unwrap();
        let group = if keys.is_empty() {
            String::new()
        } else {
            format!("group = \"{}\"\n", keys.join(", "))
        };
        check(&format!("{FROM}{group}{text}"), &tables, &expected, false);
    }
    let only = [Aggregate::count_distinct("price").named("n")];
    let expected = reference::group_by(&orders, &["city"], &only).unwrap();
    let text = format!("{FROM}group = \"city\"\nagg = \"count(distinct price) as n\"");
    check(&text, &tables, &expected, false);
}

#[test]
fn no_rows_are_a_result_too() {
    let orders = orders(0);
    let tables = [("orders", &orders)];
    let total = [Aggregate::count_rows().named("n"), Aggregate::sum("amount").named("s")];
    let one = reference::group_by(&orders, &[], &total).unwrap();
    check(&format!("{FROM}agg = 'count(*) as n, sum(amount) as s'"), &tables, &one, false);
    let none = reference::group_by(&orders, &["city"], &total).unwrap();
    let text = format!("{FROM}group = 'city'\nagg = 'count(*) as n, sum(amount) as s'");
    check(&text, &tables, &none, false);
    check(&format!("{FROM}sort = 'price'"), &tables, &orders, true);
    check(&format!("{FROM}distinct = true"), &tables, &orders, false);
}

#[test]
fn joins_of_every_kind_stream_one_side() {
    let (orders, customers) = (orders(300), customers());
    let tables = [("orders", &orders), ("customers", &customers)];
    let wide = reference::project(
        &customers,
        &[("id", col("id")), ("region", col("region")), ("key", col("id") - 0i64)],
    )
    .unwrap();
    for kind in JoinKind::ALL {
        let joined = reference::join(&orders, &wide, &[("customer", "key")], kind).unwrap();
        let names: Vec<String> = joined.schema().fields().iter().map(|f| f.name.clone()).collect();
        let kept: Vec<(&str, _)> = names
            .iter()
            .filter(|name| *name != "key")
            .map(|name| (name.as_str(), col(name)))
            .collect();
        let expected = reference::project(&joined, &kept).unwrap();
        let text = format!("{FROM}join = 'customers'\non = 'customer=id'\nkind = '{kind}'");
        check(&text, &tables, &expected, false);
        if !kind.is_left_only() {
            let total = [Aggregate::sum("amount").named("total")];
            let expected = reference::group_by(&expected, &["region"], &total).unwrap();
            let text = format!("{text}\ngroup = 'region'\nagg = 'sum(amount) as total'");
            check(&text, &tables, &expected, false);
        }
    }
}

#[test]
fn filters_mean_the_same_before_and_behind_a_join() {
    let (orders, customers) = (orders(300), customers());
    let tables = [("orders", &orders), ("customers", &customers)];
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full] {
        let text =
            format!("from = 'orders'\njoin = 'customers'\non = 'customer=id'\nkind = '{kind}'");
        let clause = "where = \"amount > 0 and region <> 'north' or amount > 90\"";
        let apart = format!("[step.j]\n{text}\n[step.s]\nfrom = 'j'\n{clause}");
        let expected = result_of(&apart, &tables, None).unwrap();
        check(&format!("[step.s]\n{text}\n{clause}"), &tables, &expected, false);
        let clause = "where = \"amount > 0 and region <> 'north' and price > id\"";
        let apart = format!("[step.j]\n{text}\n[step.s]\nfrom = 'j'\n{clause}");
        let expected = result_of(&apart, &tables, None).unwrap();
        check(&format!("[step.s]\n{text}\n{clause}"), &tables, &expected, false);
    }
}

#[test]
fn sets_and_shared_steps() {
    let orders = orders(200);
    let tables = [("orders", &orders)];
    let cities = |predicate: &str| {
        let kept = reference::filter(&orders, &parse::expression(predicate).unwrap()).unwrap();
        reference::project(&kept, &[("city", col("city"))]).unwrap()
    };
    let (low, high) = (cities("amount < 20"), cities("amount > 60"));
    let steps = "[step.cities]\nfrom = 'orders'\nselect = 'city, amount'\n\
                 [step.low]\nfrom = 'cities'\nwhere = 'amount < 20'\nselect = 'city'\n\
                 [step.high]\nfrom = 'cities'\nwhere = 'amount > 60'\nselect = 'city'\n";
    let of = |clauses: &str| format!("{steps}[step.s]\nfrom = 'low'\n{clauses}");
    let union = reference::union(&low, &high).unwrap();
    check(&of("union = 'high'"), &tables, &union, false);
    let both = reference::concat(&low, &high).unwrap();
    check(&of("union = 'high'\nall = true"), &tables, &both, false);
    for all in [false, true] {
        let expected = reference::intersect(&low, &high, all).unwrap();
        check(&of(&format!("intersect = 'high'\nall = {all}")), &tables, &expected, false);
        let expected = reference::except(&low, &high, all).unwrap();
        check(&of(&format!("except = 'high'\nall = {all}")), &tables, &expected, false);
    }
    let text = "[step.s]\nfrom = 'orders'\nwhere = 'amount < 20'\nselect = 'city'\ndistinct = true";
    check(text, &tables, &reference::distinct(&low), false);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_table_is_grouped_and_made_distinct_alike(
        relation in strategies::any_relation(60),
        batch_rows in 1usize..40,
    ) {
        let tables = [("orders", &relation)];
        let found = result_of(&format!("{FROM}distinct = true"), &tables, Some(batch_rows));
        prop_assert!(found.unwrap().same_rows(&reference::distinct(&relation)));
        let name = relation.schema().fields()[0].name.clone();
        let text = format!("{FROM}group = '\"{name}\"'\nagg = 'count(*) as n'");
        let expected =
            reference::group_by(&relation, &[&name], &[Aggregate::count_rows().named("n")]);
        let found = result_of(&text, &tables, Some(batch_rows)).unwrap();
        prop_assert!(found.same_rows(&expected.unwrap()));
    }
}

/// An engine whose budget is that many bytes, and the options for it.
/// Keys of which the first come often and the others once or twice, some of them missing, so that
/// batches are made fewer at first, and then kept in parts.
fn rarer_and_rarer(rows: usize) -> Relation {
    let key = |row: usize| match row {
        _ if row % 50 == 49 => None,
        _ if row < rows / 4 => Some(Scalar::I64(row as i64 % 3)),
        _ => Some(Scalar::I64((row as i64 * 7919) % (rows as i64 / 2) - 40)),
    };
    let other = |row: usize| (!row.is_multiple_of(31)).then_some(Scalar::U32(row as u32 % 11));
    let column = |name: &str, data_type, value: &dyn Fn(usize) -> Option<Scalar>| {
        HostColumn::new(Field::new(name, data_type), (0..rows).map(value).collect())
    };
    Relation::new(vec![
        column("key", DataType::I64, &key),
        column("value", DataType::U32, &other),
        column("real", DataType::F64, &|row| Some(Scalar::F64(row as f64 / 4.0))),
    ])
    .unwrap()
}

#[test]
fn many_groups_are_made_part_by_part() {
    let table = rarer_and_rarer(6000);
    let figures = [
        Aggregate::sum("value").named("s"),
        Aggregate::mean("value").named("m"),
        Aggregate::max("real").named("x"),
        Aggregate::count_rows().named("c"),
        Aggregate::of(xlog_relational::AggregateFunction::CountDistinct, "value").named("d"),
    ];
    let expected = reference::group_by(&table, &["key"], &figures).unwrap();
    let group = "[step.all]\nfrom = 't'\ngroup = 'key'\nagg = 'sum(value) as s, mean(value) as m, \
                 max(real) as x, count(*) as c, count(distinct value) as d'";
    let distinct = "[step.all]\nfrom = 't'\ndistinct = true";
    for batch_rows in [40, 333, 2000, 6000] {
        let found = result_of(group, &[("t", &table)], Some(batch_rows)).unwrap();
        assert!(nearly(&found, &expected), "batches of {batch_rows}");
        let found = result_of(distinct, &[("t", &table)], Some(batch_rows)).unwrap();
        assert!(found.same_rows(&reference::distinct(&table)), "batches of {batch_rows}");
    }
}

fn small(memory: usize) -> (Engine, RunOptions) {
    let device = Arc::new(CudaDevice::host());
    // A limit of its own: that of the device is every test's.
    let stack = ResourceStack::over_driver(device)
        .with(|inner| Box::new(GlobalDeviceBudget::new(inner, memory)));
    let options = RunOptions { memory: memory as u64, ..options(None) };
    (Engine::over(&stack.build().unwrap()), options)
}

#[test]
fn more_rows_than_fit_are_filtered_and_grouped_and_a_sort_is_refused_with_what_it_needs() {
    let rows = 400_000;
    let numbers = (0..rows).map(|n| Some(Scalar::I64(n * 7919 % rows))).collect();
    let keys = (0..rows).map(|n| Some(Scalar::I64(n % 10))).collect();
    let more = (0..rows).map(|n| Some(Scalar::I64(n * 31 % 4000))).collect();
    let skewed = |n: i64| if n % 100 < 72 { -1 } else { n % 40_000 };
    let skewed = (0..rows).map(|n| Some(Scalar::I64(skewed(n)))).collect();
    let table = Relation::new(vec![
        HostColumn { field: Field::new("skewed", DataType::I64), values: skewed },
        HostColumn { field: Field::new("more", DataType::I64), values: more },
        HostColumn { field: Field::new("n", DataType::I64), values: numbers },
        HostColumn { field: Field::new("k", DataType::I64), values: keys },
    ])
    .unwrap();
    let run_in = |text: &str| {
        // The table takes 12.8 MB.
        let (engine, options) = small(4 << 20);
        let sources = [source("orders", &table, 10_000)];
        let sink = MemorySink::default();
        let (cancel, monitor) = (CancelToken::new(), Arc::new(Monitor::default()));
        let sinks = vec![Box::new(sink.clone()) as Box<dyn Sink>];
        let ran = run(&engine, &query(text), &sources, sinks, &options, &cancel, &monitor);
        ran.map(|()| sink)
    };
    let counted = run_in(&format!("{FROM}where = 'n % 2 = 0'\nagg = 'count(*) as n'")).unwrap();
    assert_eq!(counted.relation().row(0), [Some(Scalar::U64(rows as u64 / 2))]);
    let grouped = run_in(&format!("{FROM}group = 'k'\nagg = 'sum(n) as s'")).unwrap();
    assert_eq!(grouped.relation().rows(), 10);
    // Every batch has most of the groups, so that none is made much fewer by itself.
    let figures = "agg = 'count(*) as c, sum(n) as s, max(k) as k'";
    let grouped = run_in(&format!("{FROM}group = 'more'\n{figures}")).unwrap().relation();
    assert_eq!((grouped.rows(), &grouped.row(7)[1]), (4000, &Some(Scalar::U64(100))));
    // One part has most of the rows.
    let grouped = run_in(&format!("{FROM}group = 'skewed'\n{figures}")).unwrap().relation();
    assert_eq!(grouped.rows(), 11_201);
    let error = run_in(&format!("{FROM}sort = 'n'")).err().unwrap();
    let QueryError::TooLarge { needed, budget, .. } = &error else { panic!("{error}") };
    assert!(*needed > *budget && *budget == 4 << 20, "{error}");
    assert!(error.to_string().contains("--memory") && !error.is_bad_input(), "{error}");
}

#[test]
fn a_sort_key_means_what_is_selected_under_its_name() {
    let table = orders(300);
    let select = [("price", col("price") * -1.0), ("city", col("city"))];
    let by = [SortKey::new("price").nulls_first(), SortKey::new("day"), SortKey::new("amount")];
    let wide = [&select[..], &[("day", col("day")), ("amount", col("amount"))]].concat();
    let sorted = reference::sort(&reference::project(&table, &wide).unwrap(), &by).unwrap();
    let expected =
        reference::project(&sorted, &[("price", col("price")), ("city", col("city"))]).unwrap();
    let text = format!(
        "{FROM}select = 'price * -1.0 as price, city'\nsort = 'price:nulls-first, day, amount'"
    );
    check(&text, &[("orders", &table)], &expected, false);
    let found = result_of(&text, &[("orders", &table)], None).unwrap();
    let prices = |relation: &Relation| relation.column("price").unwrap().values.clone();
    assert_eq!(prices(&found), prices(&expected));
}
