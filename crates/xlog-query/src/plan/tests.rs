//! Plans in files, and what becomes of them.

use xlog_relational::{DataType, Field, Schema};

use super::*;

fn sources() -> Vec<(String, Schema)> {
    let schema = |fields: &[(&str, DataType)]| {
        Schema::new(fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect()).unwrap()
    };
    vec![
        (
            "orders".to_owned(),
            schema(&[
                ("id", DataType::I64),
                ("customer_id", DataType::I64),
                ("amount", DataType::F64),
                ("note", DataType::Utf8),
            ]),
        ),
        (
            "customers".to_owned(),
            schema(&[("id", DataType::I32), ("region", DataType::Utf8), ("note", DataType::Utf8)]),
        ),
    ]
}

const PLAN: &str = r#"
[input.orders]
files = "orders.csv"
[input.customers]
files = ["a.csv", "b.csv"]
types = { id = "i32" }

[step.totals]
from = "large"
join = "customers"
on = "customer_id=id"
where = "region <> 'north' and amount < 1000"
group = "region"
agg = ["sum(amount) as total", "count(*)"]
sort = "total:desc"
write = "totals.parquet"

[step.large]
from = "orders"
where = "amount > 100"
"#;

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let error = PlanFile::read("plan.toml", text).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn steps_stand_behind_those_they_read() {
    let plan = PlanFile::read("plan.toml", PLAN).unwrap();
    let names: Vec<_> = plan.query.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["large", "totals"]);
    assert_eq!(plan.query.outputs, ["totals"]);
    assert_eq!(plan.outputs[0].file.as_deref(), Some("totals.parquet"));
    assert_eq!(plan.inputs.len(), 2);
}

#[test]
fn only_what_is_needed_is_read_and_filters_of_one_side_run_before_the_join() {
    let plan = PlanFile::read("plan.toml", PLAN).unwrap();
    let logical = LogicalPlan::of(&plan.query, &sources()).unwrap();
    let scans: Vec<String> = logical.nodes[..2].iter().map(|n| n.schema.to_string()).collect();
    assert_eq!(scans, ["customer_id: i64, amount: f64", "id: i32, region: utf8"]);
    let filters: Vec<String> = logical
        .nodes
        .iter()
        .filter_map(|node| match &node.operation {
            Operation::Filter(expr) => Some(expr.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(filters, ["amount > 100", "amount < 1000", "region <> 'north'"]);
    let result = &logical.nodes[logical.outputs[0]].schema;
    assert_eq!(result.to_string(), "region: utf8, total: f64?, count(*): u64");
}

#[test]
fn columns_of_both_sides_are_told_apart() {
    let join = |on: &str, kind: &str| {
        let text = format!(
            "[input.a]\nfiles=\"a\"\n[step.s]\nfrom=\"orders\"\njoin=\"customers\"\non=\"{on}\"\n\
             kind=\"{kind}\"\n"
        );
        let plan = PlanFile::read("plan.toml", &text).unwrap();
        let logical = LogicalPlan::of(&plan.query, &sources()).unwrap();
        logical.nodes[logical.outputs[0]].schema.to_string()
    };
    let left = "id: i64, customer_id: i64, amount: f64, note: utf8";
    assert_eq!(
        join("customer_id=id", "inner"),
        format!("{left}, id_right: i32, region: utf8, note_right: utf8")
    );
    assert_eq!(join("id", "left"), format!("{left}, region: utf8?, note_right: utf8?"));
    assert_eq!(join("id", "semi"), left);
    assert_eq!(
        join("note,id", "right"),
        "customer_id: i64?, amount: f64?, id: i32, region: utf8, note: utf8"
    );
}

#[test]
fn what_is_wrong_with_a_plan_is_said_with_line_and_column() {
    refused("[step.a]\nfrm = \"x\"", &["plan.toml, line 2, column 1", "did you mean \"from\"?"]);
    refused("[steps.a]\nfrom = \"x\"", &["line 1, column 2", "did you mean \"step\"?"]);
    refused("[step.a]\nfrom = 3", &["line 2, column 8", "expected a text, found integer"]);
    refused("[step.a]\nfrom = \"a\"", &["reads its own result"]);
    refused("[step.a]\nwhere = \"x\"", &["reads nothing"]);
    refused("[step.a]\nfrom=\"x\"\nwhere = \"a >\"", &["line 3", "expected a value", "^"]);
    refused("[step.a]\nfrom=\"x\"\njoin=\"y\"", &["needs \"on\""]);
    refused("[step.a]\nfrom=\"x\"\nkind=\"left\"", &["goes with \"join\""]);
    refused("[step.a]\nfrom=\"x\"\njoin=\"y\"\non=\"a\"\nkind=\"outer\"", &["inner, left, right"]);
    refused("[step.a]\nfrom=\"x\"\nlimit=-1", &["whole number"]);
    refused("[step.a]\nfrom=\"x\"\n[step.b]\nfrom=\"x\"", &["several steps"]);
    refused("[step.a\n", &["no TOML", "line 1"]);
    refused("", &["no step"]);
    refused("[input.a]\nformat=\"csv\"\n[step.b]\nfrom=\"a\"", &["names no files"]);
}

#[test]
fn two_steps_never_write_one_file() {
    let plan = |one: &str, two: &str| {
        format!("[input.a]\nfiles='a.csv'\n[step.x]\nfrom='a'\n{one}\n[step.y]\nfrom='a'\n{two}\n")
    };
    refused(&plan("write='o.csv'", "write='o.csv'"), &["two steps write o.csv"]);
    refused(&plan("write='-'", ""), &["two steps write standard output"]);
    refused(&plan("", ""), &["several steps are read by nobody"]);
    assert!(PlanFile::read("plan.toml", &plan("write='o.csv'", "write='p.csv'")).is_ok());
}

#[test]
fn unknown_columns_are_pointed_at() {
    let refused = |clauses: &str, words: &[&str]| {
        let text = format!("[step.s]\nfrom = \"orders\"\n{clauses}\n");
        let plan = PlanFile::read("plan.toml", &text).unwrap();
        let error = LogicalPlan::of(&plan.query, &sources()).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
    };
    refused("where = \"amont > 1\"", &["line 3", "did you mean \"amount\"?", "^"]);
    refused("where = \"note > 1\"", &["expected utf8"]);
    refused("where = \"amount\"", &["bool"]);
    refused("sort = \"amuont\"", &["did you mean \"amount\"?"]);
    refused("select = \"id, amount as id\"", &["two columns are called \"id\""]);
    refused("agg = \"sum(note)\"", &["a number"]);
    refused("group = \"nte\"", &["did you mean \"note\"?"]);
    refused("join = \"customer\"\non = \"id\"", &["did you mean \"customers\"?"]);
    refused("join = \"customers\"\non = \"ident=id\"", &["the left table"]);
    refused("join = \"customers\"\non = \"note=id\"", &["is utf8 and", "--type"]);
    refused("union = \"customers\"", &["select the same columns"]);
}

#[test]
fn rows_can_be_sorted_by_what_is_not_selected() {
    let text = "[step.s]\nfrom=\"orders\"\nselect=\"note\"\nsort=\"amount:desc\"\nlimit=3\n";
    let plan = PlanFile::read("plan.toml", text).unwrap();
    let logical = LogicalPlan::of(&plan.query, &sources()).unwrap();
    assert_eq!(logical.nodes[logical.outputs[0]].schema.to_string(), "note: utf8");
    assert_eq!(logical.nodes[0].schema.to_string(), "amount: f64, note: utf8");
}
