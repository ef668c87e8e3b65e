//! Texts that nobody wrote, read as expressions, clauses and plans until the time is over.
//!
//! ```text
//! cargo run --release -p xlog-query --example fuzz_parse -- --seconds 600 --what expressions
//! cargo run --release -p xlog-query --example fuzz_parse -- --seconds 600 --what plans
//! ```
//!
//! What is read must be read the same again from its own text, errors must have a place in the
//! text, and nothing may panic or overflow the stack.

use std::time::{Duration, Instant};

use xlog_query::{
    QueryError, parse,
    plan::{Combination, PlanFile},
};

const EXPRESSIONS: [&str; 12] = [
    "amount > 100 and region in ('north', 'south') or not (name is null)",
    "date '2024-01-31' <= \"day of\" and -x * (y + 1.5e3) % 7 <> .5",
    "a between -9223372036854775808 and 18446744073709551615",
    "it = 'it''s' and `or` not in (1, -2.5, null, true, timestamp '2024-01-31 12:00:00.5')",
    "sum(price * quantity) as total, count(*), count(distinct x), avg(y)",
    "total:desc,name:asc:nulls-first,\"a b\":nulls-last",
    "customer_id=id,region",
    "*, b*2 as c, größe.x",
    "not not a and (((b)))",
    "--1 - - 2 + + 3",
    "a is not null = (b is null)",
    "'日本語' <> \"名前\"",
];

const PLANS: [&str; 4] = [
    r#"[input.a]
files = ["a.csv", 'b.csv']
types = { x = "i64" }
header = false
null = 'NA'
[step.s]
from = "a"
where = "x > 1"
group = "y"
agg = ['sum(x) as t', "count(*)"]
sort = "t:desc"
limit = 10
offset = 0x1
write = "out.parquet"
"#,
    "[input.o]\nfiles='o'\n[input.c]\nfiles='c'\n[step.j]\nfrom='o'\njoin='c'\non='a=b'\n\
     kind='left'\nselect='*'\ndistinct=true\nhaving='a > 1'\n",
    "[step.u]\nfrom='a'\nunion='b'\nall=true\n[step.a]\nfrom='x'\n[step.b]\nfrom='a'\n",
    "step.a.from = 'b'\nstep.b = { from = 'c', format = 'csv' }\n# words\n",
];

const WORDS: [&str; 44] = [
    "and",
    "or",
    "not",
    "in",
    "is",
    "null",
    "between",
    "as",
    "(",
    ")",
    "((((((((",
    "))))))))",
    "'",
    "''",
    "\"",
    "`",
    ",",
    ":",
    "=",
    "<",
    ">",
    "<=",
    "<>",
    "!=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "1",
    "0.5",
    "1e309",
    "99999999999999999999",
    "date '",
    "timestamp '2024-01-31'",
    "sum(",
    "count(*)",
    "distinct",
    "\n",
    "[step.",
    "]\n",
    " = ",
    "\u{1}",
    "é\u{301}日",
];

/// Numbers that follow from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }
}

/// A text that is one of the examples, changed in a few places.
fn changed(random: &mut Random, examples: &[&str]) -> String {
    let mut text = examples[random.below(examples.len())].to_owned();
    for _ in 0..random.below(8) {
        let place = |text: &str, random: &mut Random| {
            text.floor_char_boundary(random.below(text.len() + 1))
        };
        let at = place(&text, random);
        match random.below(7) {
            0 => text.insert_str(at, WORDS[random.below(WORDS.len())]),
            1 => text.insert(at, char::from_u32(random.below(0x11_0000) as u32).unwrap_or('?')),
            2 => text.truncate(at),
            3 => {
                let end = place(&text, random);
                text.replace_range(at.min(end)..at.max(end), "");
            }
            4 => {
                let end = place(&text, random);
                let part = text[at.min(end)..at.max(end)].to_owned();
                text.insert_str(at, &part);
            }
            5 => {
                let other = examples[random.below(examples.len())];
                text.insert_str(at, &other[other.floor_char_boundary(random.below(other.len()))..]);
            }
            _ => text = WORDS[random.below(WORDS.len())].repeat(random.below(3000)) + &text,
        }
        if text.len() > 100_000 {
            text.truncate(text.floor_char_boundary(50_000));
        }
    }
    text
}

/// Reads a text in every way; whether any of them took it.
fn read_clauses(text: &str) -> bool {
    let mut taken = false;
    let mut answered = |error: Option<parse::ParseError>| match error {
        None => taken = true,
        Some(error) => {
            assert!(error.at <= text.len(), "{error:?}");
            let shown = error.to_string();
            assert!(shown.contains('^') && shown.lines().count() >= 3, "{shown}");
        }
    };
    let expression = parse::expression(text);
    if let Ok(expr) = &expression {
        let again = expr.to_string();
        // Its text has parentheses that were not written, and may be too deep for that reason.
        match parse::expression(&again) {
            Ok(read) => assert_eq!(read.to_string(), again, "{text}"),
            Err(error) => assert!(error.message.contains("stand in each other"), "{text}: {error}"),
        }
    }
    answered(expression.err());
    answered(parse::selection(text).err());
    answered(parse::outputs(text).err());
    answered(parse::aggregates(text).err());
    answered(parse::sort_keys(text).err());
    answered(parse::join_keys(text).err());
    answered(parse::names(text).err());
    taken
}

fn read_plan(text: &str) -> bool {
    match PlanFile::read("plan.toml", text) {
        Ok(plan) => {
            let mut known: Vec<&str> = Vec::new();
            let names: Vec<&str> = plan.query.steps.iter().map(|step| &*step.name).collect();
            for step in &plan.query.steps {
                let with = match &step.combination {
                    Some(Combination::Join { with, .. } | Combination::Set { with, .. }) => with,
                    None => &step.from,
                };
                for table in [&step.from, with] {
                    let later = names.contains(&table.as_str()) && !known.contains(&table.as_str());
                    assert!(!later, "{text}");
                }
                known.push(&step.name);
            }
            assert_eq!(plan.query.outputs.len(), plan.outputs.len());
            true
        }
        Err(error) => {
            let shown = error.to_string();
            let placed = matches!(error, QueryError::Parse { .. });
            assert!(placed && shown.contains("plan.toml, line ") && shown.contains('^'), "{shown}");
            false
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut seconds, mut what) = (10, "expressions".to_owned());
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--seconds" => seconds = value.parse().unwrap_or(seconds),
            "--what" => what = value,
            other => {
                eprintln!("fuzz_parse: {other} is not known; there are --seconds and --what");
                std::process::exit(2);
            }
        }
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut texts, mut taken) = (0u64, 0u64);
    while Instant::now() < end {
        for _ in 0..100 {
            let text = match what.as_str() {
                "plans" if random.below(3) > 0 => changed(&mut random, &PLANS),
                _ => changed(&mut random, &EXPRESSIONS),
            };
            let read = if what == "plans" { read_plan(&text) } else { read_clauses(&text) };
            texts += 1;
            taken += u64::from(read);
        }
    }
    println!("{texts} texts as {what}, {taken} of them taken, in {seconds} s; nothing wrong");
}
