//! Every command on the example files.

use crate::support::{Folder, example, run, run_with, said, text};

/// The fields of the example orders, one line after the other.
fn orders() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(example("orders.csv")).expect("the example is there");
    // No field before the note has a comma in it.
    let fields = |line: &str| line.splitn(7, ',').map(str::to_owned).collect();
    text.lines().skip(1).map(fields).collect()
}

#[test]
fn a_filter_keeps_the_rows_for_which_it_holds() {
    let found = said(&[
        "filter",
        &example("orders.csv"),
        "--where",
        "amount > 100",
        "--select",
        "order_id, amount",
    ]);
    let expected: Vec<String> = orders()
        .iter()
        .filter(|row| row[5].parse::<f64>().is_ok_and(|amount| amount > 100.0))
        .map(|row| format!("{},{}", row[0], row[5].parse::<f64>().expect("a number")))
        .collect();
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[0], "order_id,amount");
    let numbers = |line: &str| {
        let (id, amount) = line.split_once(',').expect("two fields");
        format!("{id},{}", amount.parse::<f64>().expect("a number"))
    };
    assert_eq!(lines[1..].iter().map(|line| numbers(line)).collect::<Vec<_>>(), expected);
}

#[test]
fn a_sort_orders_and_a_limit_cuts() {
    let found = said(&[
        "sort",
        &example("orders.csv"),
        "--by",
        "amount:desc,order_id",
        "--limit",
        "5",
        "--select",
        "order_id",
    ]);
    let mut rows = orders();
    rows.retain(|row| !row[5].is_empty());
    rows.sort_by(|a, b| {
        let amount = |row: &[String]| row[5].parse::<f64>().expect("a number");
        amount(b).total_cmp(&amount(a)).then(a[0].len().cmp(&b[0].len())).then(a[0].cmp(&b[0]))
    });
    let expected: Vec<&str> = rows.iter().take(5).map(|row| row[0].as_str()).collect();
    assert_eq!(found.lines().skip(1).collect::<Vec<_>>(), expected);
}

#[test]
fn the_join_of_the_readme_answers_its_question() {
    let (orders_file, customers_file) = (example("orders.csv"), example("customers.csv"));
    let found = said(&[
        "join",
        &orders_file,
        &customers_file,
        "--on",
        "customer_id=id",
        "--where",
        "amount > 100",
        "--group",
        "region",
        "--agg",
        "sum(amount) as total, count(*) as orders",
        "--sort",
        "total:desc",
    ]);
    let customers = std::fs::read_to_string(&customers_file).expect("the example is there");
    let region = |id: &str| {
        let line = customers.lines().find(|line| line.starts_with(&format!("{id},")))?;
        ["north", "south", "east", "west"].into_iter().find(|r| line.contains(&format!(",{r},")))
    };
    let mut totals = std::collections::BTreeMap::<&str, (f64, u64)>::new();
    for row in orders() {
        if let (Ok(amount), Some(region)) = (row[5].parse::<f64>(), region(&row[1]))
            && amount > 100.0
        {
            let total = totals.entry(region).or_default();
            *total = (total.0 + amount, total.1 + 1);
        }
    }
    let mut expected: Vec<_> = totals.into_iter().collect();
    expected.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[0], "region,total,orders");
    assert_eq!(lines.len(), expected.len() + 1, "{found}");
    for (line, (region, (total, orders))) in lines[1..].iter().zip(expected) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!((fields[0], fields[2]), (region, orders.to_string().as_str()));
        assert!((fields[1].parse::<f64>().expect("a number") - total).abs() < 1e-6, "{line}");
    }
}

#[test]
fn groups_distinct_rows_and_heads() {
    let orders_file = example("orders.csv");
    let counted = said(&["group", &orders_file, "--agg", "count(*) as n, count(amount) as m"]);
    let there = orders().iter().filter(|row| !row[5].is_empty()).count();
    assert_eq!(counted, format!("n,m\n200,{there}\n"));
    let statuses = said(&["distinct", &orders_file, "--select", "status", "--sort", "status"]);
    assert_eq!(statuses, "status\nopen\npaid\nreturned\nsent\n");
    assert_eq!(said(&["head", &orders_file]).lines().count(), 11);
    assert_eq!(
        said(&["head", &orders_file, "-n", "3", "--select", "order_id"]),
        "order_id\n1\n2\n3\n"
    );
    let having = said(&[
        "group",
        &orders_file,
        "--by",
        "status",
        "--agg",
        "count(*) as n",
        "--having",
        "n > 70",
        "--select",
        "status",
    ]);
    assert_eq!(having, "status\nsent\n");
}

#[test]
fn tables_for_people_say_types_and_how_many_rows() {
    let shown = said(&["head", &example("customers.csv"), "-n", "2", "--format", "table"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].contains("id") && lines[0].contains("name"), "{shown}");
    assert!(lines[1].contains("i64") && lines[1].contains("utf8") && lines[1].contains("date"));
    assert_eq!(lines.last(), Some(&"2 rows"));
    let long = said(&["filter", &example("orders.csv"), "--where", "true", "--format", "table"]);
    assert!(long.ends_with("200 rows, 40 shown\n"), "{long}");
}

#[test]
fn standard_input_is_a_table_too() {
    let output = run_with(
        &["group", "-", "--by", "k", "--agg", "sum(v) as s", "--sort", "k"],
        "k,v\na,1\nb,2\na,3\n",
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "k,s\na,4\nb,2\n");
    let other = Folder::new("stdin");
    let right = other.file("right.csv", "k,name\na,one\nc,three\n");
    let joined = run_with(&["join", "-", &right, "--on", "k"], "k,v\na,1\nb,2\n");
    assert_eq!(text(&joined.stdout), "k,v,name\na,1,one\n");
}

#[test]
fn formats_are_converted_and_come_back() {
    let folder = Folder::new("convert");
    let original = said(&["convert", &example("orders.csv")]);
    for name in ["orders.parquet", "orders.arrow", "orders.jsonl", "orders.tsv", "orders.csv.gz"] {
        let file = folder.path(name);
        assert_eq!(said(&["convert", &example("orders.csv"), "-o", &file]), "");
        let back = said(&["convert", &file]);
        assert_eq!(back, original, "{name}");
    }
    let types = said(&["schema", &folder.path("orders.parquet")]);
    assert!(types.contains("ordered,timestamp") && types.contains("amount,f64"), "{types}");
}

#[test]
fn several_files_and_patterns_are_one_table() {
    let folder = Folder::new("several");
    folder.file("part-1.csv", "a,b\n1,x\n");
    folder.file("part-2.csv", "a,b\n2,y\n");
    let pattern = folder.path("part-*.csv");
    assert_eq!(said(&["sort", &pattern, "--by", "a:desc"]), "a,b\n2,y\n1,x\n");
    let (one, two) = (folder.path("part-1.csv"), folder.path("part-2.csv"));
    assert_eq!(said(&["group", &one, &two, "--agg", "sum(a) as s"]), "s\n3\n");
    assert_eq!(said(&["combine", &one, &two, "--sort", "a"]), "a,b\n1,x\n2,y\n");
    assert_eq!(said(&["combine", &one, &one, "--as", "except"]), "a,b\n");
}

#[test]
fn options_of_csv_and_types_are_heeded() {
    let folder = Folder::new("options");
    let file = folder.file("a.txt", "1;NA;007\n2;x;8\n");
    let found = said(&[
        "head",
        &file,
        "--input-format",
        "csv",
        "--delimiter",
        ";",
        "--no-header",
        "--null",
        "NA",
        "--type",
        "column3=utf8",
    ]);
    assert_eq!(found, "column1,column2,column3\n1,,007\n2,x,8\n");
    let orders_file = example("orders.csv");
    let types = said(&["schema", &orders_file, "--type", "items=u32"]);
    assert!(types.contains("items,u32"), "{types}");
}

#[test]
fn joins_of_every_kind_and_their_columns() {
    let folder = Folder::new("kinds");
    let left = folder.file("left.csv", "id,v\n1,a\n2,b\n3,c\n");
    let right = folder.file("right.csv", "id,v\n2,x\n3,y\n4,z\n");
    let join =
        |kind: &str| said(&["join", &left, &right, "--on", "id", "--kind", kind, "--sort", "id"]);
    assert_eq!(join("inner"), "id,v,v_right\n2,b,x\n3,c,y\n");
    assert_eq!(join("left"), "id,v,v_right\n1,a,\n2,b,x\n3,c,y\n");
    assert_eq!(join("right"), "v,id,v_right\nb,2,x\nc,3,y\n,4,z\n");
    assert_eq!(join("semi"), "id,v\n2,b\n3,c\n");
    assert_eq!(join("anti"), "id,v\n1,a\n");
    let full =
        said(&["join", &left, &right, "--on", "id", "--kind", "full", "--sort", "id,id_right"]);
    assert_eq!(full, "id,v,id_right,v_right\n1,a,,\n2,b,2,x\n3,c,3,y\n,,4,z\n");
}

#[test]
fn a_plan_of_several_steps_runs() {
    let folder = Folder::new("plan");
    let (orders_file, customers_file) = (example("orders.csv"), example("customers.csv"));
    let large = folder.path("large.csv");
    let plan = folder.file("plan.toml", format!(
        "[input.orders]\nfiles = '{orders_file}'\n[input.customers]\nfiles = '{customers_file}'\n\
         [step.totals]\nfrom = 'large'\njoin = 'customers'\non = 'customer_id=id'\n\
         group = 'region'\nagg = 'sum(amount) as total'\nsort = 'total:desc'\n\
         [step.large]\nfrom = 'orders'\nwhere = 'amount > 100'\nwrite = '{large}'\n"
    ));
    let found = said(&["run", &plan]);
    let flags = said(&[
        "join",
        &orders_file,
        &customers_file,
        "--on",
        "customer_id=id",
        "--where",
        "amount > 100",
        "--group",
        "region",
        "--agg",
        "sum(amount) as total",
        "--sort",
        "total:desc",
    ]);
    let regions = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(',').next().unwrap_or("").to_owned()).collect()
    };
    assert_eq!(regions(&found), regions(&flags));
    let written = said(&["filter", &orders_file, "--where", "amount > 100"]);
    assert_eq!(std::fs::read_to_string(large).expect("the plan wrote it"), written);
}

#[test]
fn little_memory_is_enough_for_what_streams_and_refused_for_what_does_not() {
    let folder = Folder::new("memory");
    let mut rows = String::from("n,k\n");
    for n in 0..1_500_000u64 {
        rows.push_str(&format!("{},{}\n", n.wrapping_mul(2_654_435_761) % 1_000_003, n % 5));
    }
    let file = folder.file("n.csv", rows);
    let little = ["--memory", "96MiB"];
    let group =
        [&["group", &file, "--by", "k", "--agg", "count(*) as c", "--sort", "k"][..], &little]
            .concat();
    let expected: String = (0..5).map(|k| format!("{k},300000\n")).collect();
    assert_eq!(said(&group), format!("k,c\n{expected}"));
    let first = [&["sort", &file, "--by", "n,k", "--limit", "1"][..], &little].concat();
    assert_eq!(said(&first).lines().count(), 2);
    let output = run(&[&["sort", &file, "--by", "n"][..], &little].concat());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("would take about") && error.contains("--memory"), "{error}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn standard_input_is_read_once() {
    let folder = Folder::new("stdin-once");
    let input = "files = '-'\nformat = 'csv'\n";
    let step = "[step.all]\nfrom = 'a'\nunion = 'b'\n";
    let plan = folder.file("p.toml", format!("[input.a]\n{input}[input.b]\n{input}{step}"));
    let output = run_with(&["run", &plan], "n\n1\n2\n");
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("standard input can be one table"), "{error}");
}

#[test]
fn what_a_join_drops_cannot_overflow_in_its_filter() {
    let folder = Folder::new("dropped");
    let left = folder.file("l.csv", format!("k,v\n1,5\n2,{}\n", i64::MAX));
    let right = folder.file("r.csv", "k,w\n1,x\n");
    let join = ["join", &left, &right, "--on", "k", "--where", "v * 2 > 5", "--format", "csv"];
    assert_eq!(said(&join), "k,v,w\n1,5,x\n");
}

#[cfg(target_os = "linux")]
#[test]
fn no_output_of_a_plan_appears_unless_all_are_complete() {
    let folder = Folder::new("outputs");
    let file = folder.file("t.csv", "a\n1\n2\n");
    let first = folder.path("first.csv");
    let plan = |second: &str| {
        format!(
            "[input.t]\nfiles = '{file}'\n[step.x]\nfrom = 't'\nwrite = '{first}'\n\
             [step.y]\nfrom = 't'\nwrite = '{second}'\nformat = 'csv'\n"
        )
    };
    // A device that takes everything until it is written out.
    let output = run(&["run", &folder.file("full.toml", plan("/dev/full"))]);
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("/dev/full"), "{error}");
    assert_eq!(folder.files(), ["full.toml", "t.csv"]);
    said(&["run", &folder.file("plan.toml", plan(&folder.path("second.csv")))]);
    assert_eq!(folder.files(), ["first.csv", "full.toml", "plan.toml", "second.csv", "t.csv"]);
}

#[test]
fn keys_of_different_integers_meet_whatever_their_values_are() {
    let folder = Folder::new("integers");
    let (most, over) = (u64::MAX, i64::MAX as u64 + 1);
    let unsigned = folder.file("u.csv", format!("k,u\n{most},a\n{over},b\n7,c\n0,d\n,e\n"));
    // What they would be if bits were compared: -1 and the least there is.
    let signed = folder.file("s.csv", format!("j,s\n-1,x\n{},y\n7,z\n0,v\n,w\n", i64::MIN));
    let join = |sides: [&str; 2], on: &str, kind: &str, sort: &str, types: [&str; 2]| {
        let keys = ["join", sides[0], sides[1], "--on", on, "--kind", kind, "--sort", sort];
        let types = ["--type", types[0], "--type", types[1], "--format", "csv"];
        said(&[&keys[..], &types].concat())
    };
    let wide = |kind: &str| join([&unsigned, &signed], "k=j", kind, "u", ["k=u64", "j=i64"]);
    assert_eq!(wide("inner"), "k,u,j,s\n7,c,7,z\n0,d,0,v\n");
    assert_eq!(wide("left"), format!("k,u,j,s\n{most},a,,\n{over},b,,\n7,c,7,z\n0,d,0,v\n,e,,\n"));
    assert_eq!(
        join([&signed, &unsigned], "j=k", "anti", "s", ["k=u64", "j=i64"]),
        format!("j,s\n,w\n-1,x\n{},y\n", i64::MIN)
    );
    // Neither has a sign.
    let small = folder.file("small.csv", "j,s\n7,z\n0,v\n");
    let plain = join([&unsigned, &small], "k=j", "inner", "u", ["k=u64", "j=u32"]);
    assert_eq!(plain, "k,u,j,s\n7,c,7,z\n0,d,0,v\n");
    // One column against two of another type.
    let twice = folder.file("twice.csv", "j,m\n7,7\n0,1\n");
    let both = join([&unsigned, &twice], "k=j,k=m", "inner", "u", ["k=u64", "m=i64"]);
    assert_eq!(both, "k,u,j,m\n7,c,7,7\n");
}

#[test]
fn errors_call_a_clause_as_the_command_does() {
    let folder = Folder::new("by");
    let file = folder.file("t.csv", "a,b\n1,2\n");
    for (arguments, name) in [
        (["sort", &file, "--by", "zz"], "--by: "),
        (["sort", &file, "--by", "a:up"], "--by: "),
        (["group", &file, "--by", "zz"], "--by: "),
        (["group", &file, "--by", "a +"], "--by: "),
        (["head", &file, "--sort", "zz"], "--sort: "),
        (["head", &file, "--group", "zz"], "--group: "),
    ] {
        let output = run(&arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(name), "{arguments:?}: {error}");
    }
}

#[test]
fn fields_stand_in_the_quotes_that_are_given() {
    let folder = Folder::new("quotes");
    let file = folder.file("q.csv", "a,b\n'x,y',1\n\"z,2\n");
    assert_eq!(
        said(&["head", &file, "--quote", "'", "--format", "csv"]),
        "a,b\n\"x,y\",1\n\"\"\"z\",2\n"
    );
    let plain = folder.file("p.csv", "a,b\n\"x,1\n");
    let output = run(&["head", &plain]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--quote none"), "{}", text(&output.stderr));
    assert_eq!(
        said(&["head", &plain, "--quote", "none", "--format", "jsonl"]),
        "{\"a\":\"\\\"x\",\"b\":1}\n"
    );
    let plan = folder.file(
        "q.toml",
        format!("[input.q]\nfiles = '{file}'\nquote = \"'\"\n[step.s]\nfrom = 'q'\nselect = 'b'\n"),
    );
    assert_eq!(said(&["run", &plan]), "b\n1\n2\n");
    let output = run(&["head", &plain, "--quote", "ab"]);
    assert!(text(&output.stderr).contains("the word none"), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_once_also_where_types_are_given() {
    let folder = Folder::new("pipe");
    let right = folder.file("r.csv", "x,z\n1,p\n2,q\n");
    // Standard input by a name that is a pipe.
    let join =
        ["join", "/dev/stdin", &right, "--input-format", "csv", "--on", "a=x", "--type", "b=f64"];
    let output = run_with(&[&join[..], &["--format", "csv"]].concat(), "a,b\n1,10\n2,20\n");
    assert_eq!(
        text(&output.stdout),
        "a,b,x,z\n1,10.0,1,p\n2,20.0,2,q\n",
        "{}",
        text(&output.stderr)
    );
}
