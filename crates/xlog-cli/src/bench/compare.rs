//! Measured rows beside those of an earlier run.
//!
//! Rows are the JSON lines that `--json` prints. What names a row (words, and sizes the case was
//! set to) is its key; of the rest, the figures that the benchmark is about are compared. A ratio
//! below 1 is better, whatever the figure: of rates, the inverse counts.

use std::{fmt::Write as _, fs, io::IsTerminal, path::Path};

use serde_json::{Map, Value, json};

use crate::{BadInput, Failure};

/// Numbers that say which case a row is, not how fast it was.
const SIZES: [&str; 5] = ["blocks", "streams", "threads", "size", "rows"];

/// Words that say which case a row is, what tells most first.
const WORDS: [&str; 8] = ["pattern", "case", "op", "type", "resource", "form", "access", "peer"];

/// The figures that are compared, and whether more is better.
const FIGURES: [(&str, bool); 10] = [
    ("recorded_ns", false),
    ("above_raw_ns", false),
    ("records_per_launch", false),
    ("waits_per_launch", false),
    ("ns_per_pair", false),
    ("added_ns_per_pair", false),
    ("total_ms", false),
    ("ms", false),
    ("times_one_thread", true),
    ("times_one_stream", false),
];

/// What was measured in turn with a row: its own ratio says how alike the two runs are.
const BESIDE: [&str; 3] = ["raw_ns", "driver_ns_per_pair", "peer_ms"];

/// Up to here, a difference is what the same build shows from run to run.
const NOISE: f64 = 1.1;

/// The rows of an earlier run.
#[derive(Debug)]
pub(super) struct Earlier {
    name: String,
    rows: Vec<Map<String, Value>>,
}

/// One figure of a row that both runs have.
struct Compared {
    case: String,
    figure: &'static str,
    old: f64,
    new: f64,
    /// Below 1 is better.
    ratio: f64,
    beside: Option<f64>,
}

/// Two runs, row by row.
struct Comparison {
    figures: Vec<Compared>,
    only_old: usize,
    only_new: usize,
}

impl Earlier {
    /// Reads a file of rows.
    pub(super) fn read(path: &Path) -> Result<Self, BadInput> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            BadInput(format!("{name}: cannot be read: {error}; make it with --json > {name}"))
        })?;
        let rows = parse(&text).map_err(|(line, what)| {
            let advice = "a file to compare with is what `xlog bench ... --json` prints";
            BadInput(format!("{name}:{line}: {what}; {advice}"))
        })?;
        Ok(Self { name, rows })
    }

    /// Prints how `rows` compare with the earlier ones.
    pub(super) fn print(&self, rows: &[Value], as_json: bool) -> Result<(), Failure> {
        let rows: Vec<_> = rows.iter().filter_map(Value::as_object).cloned().collect();
        let comparison = compare(&self.rows, &rows);
        if comparison.figures.is_empty() {
            let advice = "compare runs of one benchmark on one device";
            Err(BadInput(format!("{}: has no row that this run has; {advice}", self.name)))?;
        }
        let text = if as_json {
            comparison.as_json()
        } else {
            let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            format!("\nbeside {}\n\n{}", self.name, comparison.as_table(colours))
        };
        crate::say!("{}", text.trim_end_matches('\n'));
        Ok(())
    }
}

/// The rows of a text, or the line that is none.
fn parse(text: &str) -> Result<Vec<Map<String, Value>>, (usize, String)> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(Value::Object(row)) if row.contains_key("bench") => rows.push(row),
            Ok(_) => return Err((index + 1, "is no row of a benchmark".into())),
            Err(error) => return Err((index + 1, format!("is not JSON: {error}"))),
        }
    }
    if rows.is_empty() { Err((1, "has no rows".into())) } else { Ok(rows) }
}

/// Which case a row is: everything that names it, in one order whatever the row's.
fn key(row: &Map<String, Value>) -> Vec<(&str, String)> {
    let names = |(name, value): &(&String, &Value)| {
        value.is_string() || (value.is_number() && SIZES.contains(&name.as_str()))
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut key: Vec<_> =
        row.iter().filter(names).map(|(name, value)| (name.as_str(), text(value))).collect();
    key.sort_unstable();
    key
}

/// A row's case for people: its words, then its sizes.
fn case(row: &Map<String, Value>) -> String {
    let words = WORDS.iter().filter_map(|name| row.get(*name)?.as_str());
    let mut text = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    for name in SIZES {
        if let Some(value) = row.get(name).filter(|value| value.is_number()) {
            let _ = write!(text, ", {value} {name}");
        }
    }
    text
}

fn compare(old: &[Map<String, Value>], new: &[Map<String, Value>]) -> Comparison {
    let mut comparison = Comparison { figures: Vec::new(), only_old: 0, only_new: 0 };
    let mut left: Vec<_> = old.iter().map(|row| Some((key(row), row))).collect();
    for row in new {
        let wanted = key(row);
        let same = |slot: &&mut Option<(Vec<(&str, String)>, _)>| {
            slot.as_ref().is_some_and(|(key, _)| *key == wanted)
        };
        let Some((_, earlier)) = left.iter_mut().find(same).and_then(Option::take) else {
            comparison.only_new += 1;
            continue;
        };
        let number = |row: &Map<String, Value>, name: &str| row.get(name).and_then(Value::as_f64);
        let beside = BESIDE.iter().find_map(|name| {
            let (old, new) = (number(earlier, name)?, number(row, name)?);
            (old > 0.0).then(|| new / old)
        });
        for (figure, more_is_better) in FIGURES {
            let (Some(old), Some(new)) = (number(earlier, figure), number(row, figure)) else {
                continue;
            };
            // Of nothing, or of less than nothing, there is no ratio: both are noise around 0. A
            // count has no noise: none before and one now is worse by any measure.
            let counts = figure.ends_with("_per_launch") && (old > 0.0 || new > 0.0);
            if !counts && (old <= 0.0 || new <= 0.0) {
                continue;
            }
            let ratio = if more_is_better { old / new } else { new / old };
            let case = case(row);
            comparison.figures.push(Compared { case, figure, old, new, ratio, beside });
        }
    }
    comparison.only_old = left.iter().flatten().count();
    comparison
}

impl Comparison {
    fn as_json(&self) -> String {
        let mut text = String::new();
        for one in &self.figures {
            let line = json!({
                "compare": one.case, "figure": one.figure, "old": one.old, "new": one.new,
                "ratio": one.ratio, "beside_ratio": one.beside,
            });
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn as_table(&self, colours: bool) -> String {
        let width = self.figures.iter().map(|one| one.case.chars().count()).max().unwrap_or(0);
        let mut text = format!(
            "{:<width$}  {:<18} {:>12} {:>12} {:>7} {:>7}\n",
            "case", "figure", "before", "now", "ratio", "beside"
        );
        for one in &self.figures {
            let beside = one.beside.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
            let ratio = format!("{:>7.2}", one.ratio);
            let ratio = match (colours, one.ratio) {
                (true, ratio_now) if ratio_now > NOISE => format!("\u{1b}[31m{ratio}\u{1b}[0m"),
                (true, ratio_now) if ratio_now < 1.0 / NOISE => {
                    format!("\u{1b}[32m{ratio}\u{1b}[0m")
                }
                _ => ratio,
            };
            let _ = writeln!(
                text,
                "{:<width$}  {:<18} {:>12} {:>12} {ratio} {beside:>7}",
                one.case,
                one.figure,
                figure_text(one.old),
                figure_text(one.new),
            );
        }
        text + &self.summary()
    }

    fn summary(&self) -> String {
        let count = self.figures.len();
        let better = self.figures.iter().filter(|one| one.ratio < 1.0 / NOISE).count();
        let worse = self.figures.iter().filter(|one| one.ratio > NOISE).count();
        let logs = self.figures.iter().map(|one| one.ratio.ln()).filter(|log| log.is_finite());
        let (logs, ratios) = logs.fold((0.0, 0), |(sum, count), log| (sum + log, count + 1));
        let mean = (logs / f64::from(ratios.max(1))).exp();
        let mut text = format!(
            "\n{count} figures: {better} better, {worse} worse, {} within {:.0} %; \
             {mean:.2} times as long on average (geometric mean)\n",
            count - better - worse,
            (NOISE - 1.0) * 100.0,
        );
        if self.only_old + self.only_new > 0 {
            let (old, new) = (self.only_old, self.only_new);
            let _ = writeln!(text, "without a counterpart: {old} rows before, {new} now");
        }
        text
    }
}

/// Three or four digits that matter.
fn figure_text(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(texts: &[&str]) -> Vec<Map<String, Value>> {
        parse(&texts.join("\n")).expect("rows")
    }

    #[test]
    fn rows_are_matched_by_what_names_them_and_not_by_their_order() {
        let old = rows(&[
            r#"{"bench":"ops","op":"sort","type":"u32","rows":10,"ms":2.0,"peer":null}"#,
            r#"{"bench":"ops","op":"sort","type":"u32","rows":20,"ms":4.0}"#,
            r#"{"bench":"ops","op":"filter","type":"u32","rows":20,"ms":1.0}"#,
        ]);
        let new = rows(&[
            r#"{"bench":"ops","op":"sort","type":"u32","ms":6.0,"rows":20}"#,
            r#"{"bench":"ops","op":"sort","type":"u32","rows":10,"ms":1.0}"#,
            r#"{"bench":"ops","op":"join","type":"u32","rows":10,"ms":1.0}"#,
        ]);
        let comparison = compare(&old, &new);
        let ratios: Vec<_> = comparison.figures.iter().map(|one| one.ratio).collect();
        assert_eq!(ratios, [1.5, 0.5]);
        assert_eq!((comparison.only_old, comparison.only_new), (1, 1));
        assert_eq!(comparison.figures[0].case, "sort u32, 20 rows");
    }

    #[test]
    fn more_is_better_for_rates_and_what_was_beside_has_a_ratio_of_its_own() {
        let row = |ours: f64, driver: f64, times: f64| {
            let row = json!({
                "bench": "alloc", "case": "threads", "threads": 8, "ns_per_pair": ours,
                "driver_ns_per_pair": driver, "times_one_thread": times,
            });
            rows(&[&row.to_string()])
        };
        let (old, new) = (row(50.0, 100.0, 4.0), row(100.0, 200.0, 8.0));
        let figures = compare(&old, &new).figures;
        let ratios: Vec<_> = figures.iter().map(|one| (one.figure, one.ratio)).collect();
        assert_eq!(ratios, [("ns_per_pair", 2.0), ("times_one_thread", 0.5)]);
        assert_eq!(figures[0].beside, Some(2.0));
    }

    #[test]
    fn figures_around_nothing_have_no_ratio() {
        let old = rows(&[r#"{"bench":"launch","above_raw_ns":-3.0,"waits_per_launch":0.0}"#]);
        let new = rows(&[r#"{"bench":"launch","above_raw_ns":4.0,"waits_per_launch":0.0}"#]);
        assert!(compare(&old, &new).figures.is_empty());
        let more = rows(&[r#"{"bench":"launch","above_raw_ns":4.0,"waits_per_launch":1.0}"#]);
        for (old, new, ratio, word) in
            [(&old, &more, f64::INFINITY, "1 worse"), (&more, &old, 0.0, "1 better")]
        {
            let comparison = compare(old, new);
            let found: Vec<_> = comparison.figures.iter().map(|one| one.ratio).collect();
            assert_eq!(found, [ratio], "a count has no noise");
            let summary = comparison.summary();
            assert!(summary.contains(word) && summary.contains("1.00 times"), "{summary}");
        }
    }

    #[test]
    fn a_file_that_is_none_is_named_with_its_line() {
        assert_eq!(parse("\n{\"bench\":1}\nnonsense").map_err(|(line, _)| line), Err(3));
        assert_eq!(parse("[1]").map_err(|(line, _)| line), Err(1));
        assert_eq!(parse("\n\n").map_err(|(line, _)| line), Err(1));
        let missing = Earlier::read(Path::new("/no/such/file")).expect_err("there is none");
        assert!(missing.to_string().contains("--json"), "{missing}");
    }

    #[test]
    fn colours_are_for_terminals_and_the_summary_counts() {
        let row = |ms: f64| format!(r#"{{"bench":"ops","op":"o{ms}","ms":1.0}}"#);
        let later = |ms: f64| format!(r#"{{"bench":"ops","op":"o{ms}","ms":{ms}}}"#);
        let cases = [0.5, 1.0, 1.05, 2.0];
        let old = parse(&cases.map(row).join("\n")).expect("rows");
        let new = parse(&cases.map(later).join("\n")).expect("rows");
        let comparison = compare(&old, &new);
        assert!(!comparison.as_table(false).contains('\u{1b}'));
        assert_eq!(comparison.as_table(true).matches('\u{1b}').count(), 4);
        let summary = comparison.summary();
        assert!(summary.contains("4 figures: 1 better, 1 worse, 2 within 10 %"), "{summary}");
        assert_eq!(comparison.as_json().lines().count(), 4);
    }
}
