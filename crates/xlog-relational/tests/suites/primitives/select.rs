//! Selections against the standard library's filters.

use libtest_mimic::Trial;
use xlog_relational::{
    Engine,
    primitives::{
        Comparison, Condition, Pending, Selectable, select_by_mask, select_if, select_rows_by_mask,
        select_rows_if,
    },
};

use super::support::{
    LENGTHS, Random, TestValue, assert_same, download, poison, stream, trial, upload, values,
};

const COMPARISONS: [Comparison; 6] = [
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::GreaterOrEqual,
    Comparison::Greater,
];

/// What the operators of Rust say.
fn compares<T: PartialOrd>(value: T, comparison: Comparison, literal: T) -> bool {
    match comparison {
        Comparison::Less => value < literal,
        Comparison::LessOrEqual => value <= literal,
        Comparison::Equal => value == literal,
        Comparison::NotEqual => value != literal,
        Comparison::GreaterOrEqual => value >= literal,
        Comparison::Greater => value > literal,
    }
}

/// What was selected, its count waited for.
fn selected<T: bytemuck::Pod>(engine: &Engine, pending: Pending<T>) -> Vec<T> {
    let (values, count) = pending.wait().expect("a count");
    download(&values, stream(engine), count as usize)
}

fn check_condition<T: TestValue + Selectable>(
    engine: &Engine,
    values: &[T],
    comparison: Comparison,
    literal: T,
    what: &str,
) {
    let stream = stream(engine);
    let input = upload(engine, stream, values);
    poison(engine, stream, size_of_val(values));
    let condition = Condition::new(comparison, literal);
    let rows: Vec<u32> = (0..values.len() as u32)
        .filter(|&row| compares(values[row as usize], comparison, literal))
        .collect();
    let expected: Vec<_> = rows.iter().map(|&row| values[row as usize].to_bits()).collect();
    let len = values.len() as u64;

    let got = select_if(engine, stream, &input, len, &condition).expect("a selection");
    let got: Vec<_> = selected(engine, got).iter().map(|value: &T| value.to_bits()).collect();
    assert_same(&got, &expected, what);
    let got = select_rows_if(engine, stream, &input, len, &condition).expect("a selection");
    assert_same(&selected(engine, got), &rows, what);
}

fn every_length<T: TestValue + Selectable>(engine: &Engine) {
    let mut random = Random::fresh();
    for len in LENGTHS {
        let values = values::<T>("random", len, &mut random);
        let what = format!("{len} values, seed {}", random.seed);
        // About half of them, then hardly any, then all.
        check_condition(engine, &values, Comparison::Less, T::middle(), &what);
        let one = values.first().copied().unwrap_or(T::middle());
        check_condition(engine, &values, Comparison::Equal, one, &what);
        check_condition(engine, &values, Comparison::NotEqual, one, &what);
    }
}

fn every_comparison<T: TestValue + Selectable>(engine: &Engine) {
    let mut random = Random::fresh();
    for shape in ["few", "extremes", "random"] {
        for len in [700, 20_000] {
            let values = values::<T>(shape, len, &mut random);
            let mut literals = T::extremes();
            literals.push(values[len / 2]);
            for literal in literals {
                for comparison in COMPARISONS {
                    let what = format!(
                        "{len} {shape} values {comparison:?} {literal:?}, seed {}",
                        random.seed
                    );
                    check_condition(engine, &values, comparison, literal, &what);
                }
            }
        }
    }
}

fn masks<T: TestValue + Selectable>(engine: &Engine) {
    let mut random = Random::fresh();
    let stream = stream(engine);
    for len in LENGTHS {
        let values = values::<T>("random", len, &mut random);
        // Of eight rows, none to all are picked; bits behind the last row are set, and not looked
        // at.
        let share = random.below(9);
        let picked: Vec<bool> = (0..len).map(|_| random.below(8) < share).collect();
        let mut mask = vec![u32::MAX; len.div_ceil(32)];
        for (row, picked) in picked.iter().enumerate() {
            if !picked {
                mask[row / 32] &= !(1 << (row % 32));
            }
        }
        let rows: Vec<u32> = (0..len as u32).filter(|&row| picked[row as usize]).collect();
        let expected: Vec<_> = rows.iter().map(|&row| values[row as usize].to_bits()).collect();
        let what = format!("{len} values, {share} of 8, seed {}", random.seed);

        let (input, mask) = (upload(engine, stream, &values), upload(engine, stream, &mask));
        poison(engine, stream, size_of_val(&values[..]));
        let got = select_by_mask(engine, stream, &input, &mask, len as u64).expect("a selection");
        let got: Vec<_> = selected(engine, got).iter().map(|value: &T| value.to_bits()).collect();
        assert_same(&got, &expected, &what);
        let got = select_rows_by_mask(engine, stream, &mask, len as u64).expect("a selection");
        assert_same(&selected(engine, got), &rows, &what);
    }
}

fn what_does_not_fit_is_refused(engine: &Engine) {
    let stream = stream(engine);
    let (values, mask) = (upload(engine, stream, &[1u32; 70]), upload(engine, stream, &[1u32]));
    let condition = Condition::new(Comparison::Less, 7);
    let text = |result: Result<Pending<u32>, xlog_cuda::device_runtime::ResourceError>| {
        result.expect_err("a refusal").to_string()
    };
    let refusal = text(select_if(engine, stream, &values, 72, &condition));
    assert!(refusal.contains("72 rows were named, the memory has 71"), "{refusal}");
    let refusal = text(select_rows_if(engine, stream, &values, 1 << 32, &condition));
    assert!(refusal.contains("32-bit row numbers"), "{refusal}");
    let refusal = text(select_by_mask(engine, stream, &values, &mask, 70));
    assert!(refusal.contains("the words of the mask: 3 rows were named"), "{refusal}");
    let refusal = text(select_rows_by_mask(engine, stream, &mask, 65));
    assert!(refusal.contains("the bits of the mask"), "{refusal}");
}

/// The suite.
pub fn tests(engine: &Engine) -> Vec<Trial> {
    macro_rules! of_values {
        ($($value:ty),*) => {
            vec![$(
                trial(concat!("select::every_length::", stringify!($value)), engine,
                      every_length::<$value>),
                trial(concat!("select::every_comparison::", stringify!($value)), engine,
                      every_comparison::<$value>),
                trial(concat!("select::masks::", stringify!($value)), engine, masks::<$value>),
            )*]
        };
    }
    let mut trials = of_values!(u32, i32, f32, u64, i64, f64);
    trials.push(trial("select::what_does_not_fit", engine, what_does_not_fit_is_refused));
    trials
}
