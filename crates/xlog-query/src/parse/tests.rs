//! Texts and what they stand for; errors and where they point.

use proptest::prelude::*;
use xlog_relational::{AggregateFunction, Expr, Scalar, SortKey, col, lit, strategies};

use super::*;

#[track_caller]
fn reads_as(text: &str, expected: Expr) {
    match expression(text) {
        Ok(found) => assert_eq!(found, expected, "{text}"),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(read: Result<T, ParseError>, at: usize, words: &str) {
    let error = read.unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(error.at, at, "{error}");
}

#[test]
fn operators_bind_as_in_sql() {
    reads_as("a or b and not c = 1", col("a").or(col("b").and(!col("c").eq(1i64))));
    reads_as("a - b - c", col("a") - col("b") - col("c"));
    reads_as("a - b * -c", col("a") - col("b") * -col("c"));
    reads_as("(a - b) % 3", (col("a") - col("b")) % 3i64);
    reads_as("not a and b", (!col("a")).and(col("b")));
    reads_as("not not a", !!col("a"));
    reads_as("a + 1 > b", (col("a") + 1i64).gt(col("b")));
    reads_as("a != 1", col("a").not_eq(1i64));
    reads_as("a == 1", col("a").eq(1i64));
    reads_as("a is null and b is not null", col("a").is_null().and(col("b").is_not_null()));
    reads_as("a between 1 and 2 and b", col("a").between(1i64, 2i64).and(col("b")));
    reads_as("a not between 1 and 2", !col("a").between(1i64, 2i64));
    reads_as("a not in (1, -2, null)", {
        let values = vec![Some(Scalar::I64(1)), Some(Scalar::I64(-2)), None];
        !Expr::InList(Box::new(col("a")), values)
    });
    reads_as("a = 1 or a = 2 and b", col("a").eq(1i64).or(col("a").eq(2i64).and(col("b"))));
}

#[test]
fn literals_are_what_they_look_like() {
    reads_as("9223372036854775807", lit(i64::MAX));
    reads_as("9223372036854775808", lit(1u64 << 63));
    reads_as("-9223372036854775808", lit(i64::MIN));
    reads_as("- 5", lit(-5i64));
    reads_as("--5", -lit(-5i64));
    reads_as("1.5e3", lit(1500.0));
    reads_as(".5", lit(0.5));
    reads_as("'it''s'", lit("it's"));
    reads_as("TRUE", lit(true));
    reads_as("date '2024-01-31'", lit(Scalar::Date32(19_753)));
    reads_as("Timestamp '1970-01-01 00:00:01'", lit(Scalar::Timestamp(1_000_000)));
    // Without a text behind them they are names.
    reads_as("date > timestamp", col("date").gt(col("timestamp")));
    reads_as("\"a \"\"b\"\"\" = `or`", col("a \"b\"").eq(col("or")));
    reads_as("größe.x_1 > 0", col("größe.x_1").gt(0i64));
}

#[test]
fn errors_point_at_the_place_and_say_what_was_expected() {
    refused(expression(""), 0, "expected a value, found the end");
    refused(expression("amount >"), 8, "expected a value after \">\", found the end");
    refused(expression("a = 'x"), 4, "no closing '");
    refused(expression("a & b"), 2, "write \"and\"");
    refused(expression("(a > 1"), 6, "expected \")\" after 1, found the end");
    refused(expression("a > 1 b"), 6, "expected an operator, or the end");
    refused(expression("a < b < c"), 6, "do not chain");
    refused(expression("a = null"), 4, "is null");
    refused(expression("a like 'x'"), 2, "patterns are not supported");
    refused(expression("lower(a) = 'x'"), 0, "no function \"lower\"");
    refused(expression("a > and"), 4, "keyword");
    refused(expression("12x > 1"), 0, "double quotes");
    refused(expression("99999999999999999999"), 0, "too large");
    refused(expression("-9223372036854775809"), 1, "too small");
    refused(expression("d > date '2024-02-30'"), 9, "a date is written");
    refused(expression("a in (b)"), 6, "expected a number, a text in single quotes");
    refused(aggregates("summ(a)"), 0, "did you mean \"sum\"?");
    refused(aggregates("max(*)"), 4, "only count takes *");
    refused(sort_keys("a:down"), 2, "asc, desc");
    refused(join_keys("a=b=c"), 3, "a comma");
    refused(selection("a, b as"), 7, "expected a name");
}

#[test]
fn the_mark_stands_under_the_place_whatever_stands_before_it() {
    let error = expression("größe = '日本' && x").unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[1], "  größe = '日本' && x");
    // Two letters of two columns each.
    assert_eq!(lines[2].len(), "  größe = '日本' ".chars().count() + 2 + 1);
    let long = format!("{} &", "a + ".repeat(100));
    let error = expression(&long).unwrap_err().to_string();
    assert!(error.lines().all(|line| line.chars().count() < 100), "{error}");
    assert!(error.contains('…'), "{error}");
}

#[test]
fn nothing_is_too_deep_or_too_long_for_the_stack() {
    for (open, close) in [("(", ")"), ("-", ""), ("not ", ""), ("+", "")] {
        let text = format!("{}a{}", open.repeat(100_000), close.repeat(100_000));
        assert!(expression(&text).is_err(), "{open}");
    }
    assert!(expression(&format!("a{}", " + a".repeat(100_000))).is_err());
    assert!(expression(&format!("a{}", " and a".repeat(500))).is_ok());
    let mut text = "a".to_owned();
    for _ in 0..60 {
        text = format!("({text} between 1 and 2)");
    }
    assert!(expression(&text).is_err(), "it would double with every step");
}

#[test]
fn clauses_are_lists() {
    let keys = sort_keys("total:desc, name:asc:nulls-first,\"a b\":nulls-last").unwrap();
    let expected = [
        SortKey::new("total").descending(),
        SortKey::new("name").nulls_first(),
        SortKey::new("a b"),
    ];
    assert_eq!(keys, expected);
    let keys = join_keys("customer_id=id,region").unwrap();
    assert_eq!(
        keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["customer_id=id", "region=region"]
    );
    let figures = aggregates("SUM(a*2) as total, count(*), count(distinct b), avg( x )").unwrap();
    let figures: Vec<_> = figures.iter().map(|f| (f.function, f.name.as_str())).collect();
    assert_eq!(
        figures,
        [
            (AggregateFunction::Sum, "total"),
            (AggregateFunction::CountRows, "count(*)"),
            (AggregateFunction::CountDistinct, "count(distinct b)"),
            (AggregateFunction::Mean, "avg( x )"),
        ]
    );
    let selected = selection("*, a, a * 2 as b, a+1").unwrap();
    assert_eq!(selected[0], Selected::All);
    assert_eq!(selected[3], Selected::One(Output { expr: col("a") + 1i64, name: "a+1".into() }));
    assert_eq!(names("a, \"b c\"").unwrap(), ["a", "b c"]);
}

#[test]
fn an_error_about_a_name_points_at_it() {
    let error = about_name("a > 1 and \"b c\" = 2", "b c", "no such column");
    assert_eq!(error.at, 10);
}

/// Whether every part of an expression has a text that stands for it.
fn is_writable(expr: &Expr) -> bool {
    let finite = |value: &Scalar| match value {
        Scalar::F32(value) => value.is_finite(),
        Scalar::F64(value) => value.is_finite(),
        _ => true,
    };
    match expr {
        Expr::Null(_) => false,
        Expr::Literal(value) => finite(value),
        Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) | Expr::Arithmetic(_, a, b) => {
            is_writable(a) && is_writable(b)
        }
        Expr::Not(a) | Expr::IsNull(a) | Expr::IsNotNull(a) | Expr::Negate(a) => is_writable(a),
        Expr::InList(a, values) => is_writable(a) && values.iter().flatten().all(finite),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        max_global_rejects: 8000,
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn what_is_written_reads_the_same(expr in strategies::predicate()) {
        prop_assume!(is_writable(&expr));
        // Chains come back grouped from the left, and signs of numbers as part of them.
        let first = expression(&expr.to_string());
        let first = first.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(expression(&first.to_string()), Ok(first));
    }

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        let _ = (expression(&text), aggregates(&text), selection(&text));
        let _ = (sort_keys(&text), join_keys(&text), names(&text));
    }

    #[test]
    fn any_words_are_answered_and_errors_can_be_shown(
        words in prop::collection::vec(prop::sample::select(vec![
            "a", "1", "'x'", "(", ")", "and", "or", "not", "in", "is", "null", "between", "-", "<",
            "=", ",", "*", "/", "as", "sum", "count", "distinct", ":", "desc", "date", "\"é\"", "'",
        ]), 0..24)
    ) {
        let text = words.join(" ");
        if let Err(error) = expression(&text) {
            prop_assert!(error.to_string().contains('^') && error.at <= text.len());
        }
        let _ = (aggregates(&text), selection(&text), sort_keys(&text), join_keys(&text));
    }
}
