//! Comparisons with a literal, as ranges.

use crate::{
    expr,
    primitives::order::{Bits, Order, Ordered},
};

/// How a value compares with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Less than it.
    Less,
    /// Less than it, or equal.
    LessOrEqual,
    /// Equal to it.
    Equal,
    /// Not equal to it.
    NotEqual,
    /// Greater than it, or equal.
    GreaterOrEqual,
    /// Greater than it.
    Greater,
}

/// A condition on a value that is fused into the kernel that selects by it: that the value lies in
/// a range, or that it does not.
///
/// Floats compare as Rust's operators do: -0.0 equals 0.0, and a NaN is unequal to everything,
/// itself included, and neither less nor greater.
///
/// ```
/// use xlog_relational::primitives::{Comparison, Condition};
///
/// let positive = Condition::new(Comparison::Greater, 0.0f32);
/// assert!(positive.holds(1e-40) && !positive.holds(-0.0) && !positive.holds(f32::NAN));
/// let between = Condition::between(-5i64, 7);
/// assert!(between.holds(7) && !between.holds(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<T: Ordered> {
    /// The least ordered bits of the range.
    pub(super) least: T::Bits,
    /// How many come behind it.
    pub(super) span: T::Bits,
    /// Whether values outside of it are meant.
    pub(super) outside: bool,
}

impl<T: Ordered> Condition<T> {
    /// That a value compares so with `literal`.
    #[must_use]
    pub fn new(comparison: Comparison, literal: T) -> Self {
        // Only a NaN differs from itself.
        if literal.partial_cmp(&literal).is_none() {
            return Self { outside: comparison != Comparison::NotEqual, ..Self::always() };
        }
        let (least, greatest) = alike(literal);
        let ends = (T::ENDS.0.to_ordered(), T::ENDS.1.to_ordered());
        match comparison {
            Comparison::Less if least == ends.0 => Self::never(),
            Comparison::Less => Self::within(ends.0, least.previous()),
            Comparison::LessOrEqual => Self::within(ends.0, greatest),
            Comparison::Equal => Self::within(least, greatest),
            Comparison::NotEqual => Self { outside: true, ..Self::within(least, greatest) },
            Comparison::GreaterOrEqual => Self::within(least, ends.1),
            Comparison::Greater if greatest == ends.1 => Self::never(),
            Comparison::Greater => Self::within(greatest.next(), ends.1),
        }
    }

    /// That a value compares so with `literal` as expressions compare them: a NaN equals every NaN
    /// and is above all numbers.
    #[must_use]
    pub(crate) fn comparing(comparison: expr::Comparison, literal: T) -> Self {
        let ends = (T::ENDS.0.to_ordered(), T::ENDS.1.to_ordered());
        let numbers = Self::within(ends.0, ends.1);
        let is_number = literal.partial_cmp(&literal).is_some();
        let (least, greatest) = alike(literal);
        let (less, equal, less_or_equal) = match is_number {
            // What is no number lies outside of the numbers, at both ends of the bits.
            false => (numbers, numbers.inverted(), Self::always()),
            true => {
                let first = least == ends.0;
                let less =
                    if first { Self::never() } else { Self::within(ends.0, least.previous()) };
                (less, Self::within(least, greatest), Self::within(ends.0, greatest))
            }
        };
        match comparison {
            expr::Comparison::Equal => equal,
            expr::Comparison::NotEqual => equal.inverted(),
            expr::Comparison::Less => less,
            expr::Comparison::LessOrEqual => less_or_equal,
            expr::Comparison::Greater => less_or_equal.inverted(),
            expr::Comparison::GreaterOrEqual => less.inverted(),
        }
    }

    /// That it does not hold.
    fn inverted(self) -> Self {
        Self { outside: !self.outside, ..self }
    }

    /// That a value is neither less than `low` nor greater than `high`.
    #[must_use]
    pub fn between(low: T, high: T) -> Self {
        match low.partial_cmp(&high) {
            Some(order) if order.is_le() => Self::within(alike(low).0, alike(high).1),
            _ => Self::never(),
        }
    }

    /// Whether the condition holds for a value.
    #[must_use]
    pub fn holds(&self, value: T) -> bool {
        self.holds_ordered(Order::of::<T>(false).apply(value.to_bits()))
    }

    #[inline(always)]
    pub(super) fn holds_ordered(&self, bits: T::Bits) -> bool {
        (bits.minus(self.least) <= self.span) != self.outside
    }

    fn within(least: T::Bits, greatest: T::Bits) -> Self {
        Self { least, span: greatest.minus(least), outside: false }
    }

    /// The same condition on memory that is typed by width alone.
    pub(crate) fn on_bits(&self) -> BitCondition<T::Bits> {
        let Self { least, span, outside } = *self;
        BitCondition { order: Order::of::<T>(false), least, span, outside }
    }

    fn always() -> Self {
        Self::within(T::Bits::default(), T::Bits::GREATEST)
    }

    fn never() -> Self {
        Self { outside: true, ..Self::always() }
    }
}

/// A condition, and how the bits that it is about are ordered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitCondition<B> {
    pub(crate) order: Order<B>,
    pub(crate) least: B,
    pub(crate) span: B,
    pub(crate) outside: bool,
}

/// The ordered bits of the values that equal `literal`, from the least to the greatest: the zeros
/// of floats are two, and they are neighbours.
fn alike<T: Ordered>(literal: T) -> (T::Bits, T::Bits) {
    let bits = literal.to_ordered();
    let zero = T::zeroed();
    if T::MAGNITUDE != T::Bits::default() && literal == zero {
        (zero.to_ordered().previous(), zero.to_ordered())
    } else {
        (bits, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees<T: Ordered>(values: &[T]) {
        use Comparison::*;
        for &literal in values {
            for &value in values {
                let check = |comparison, expected: bool| {
                    let holds = Condition::new(comparison, literal).holds(value);
                    assert_eq!(holds, expected, "{value:?} {comparison:?} {literal:?}");
                };
                check(Less, value < literal);
                check(LessOrEqual, value <= literal);
                check(Equal, value == literal);
                check(NotEqual, value != literal);
                check(GreaterOrEqual, value >= literal);
                check(Greater, value > literal);
                for &high in values {
                    let between = Condition::between(literal, high).holds(value);
                    assert_eq!(between, value >= literal && value <= high);
                }
            }
        }
    }

    #[test]
    fn comparisons_of_expressions_have_nan_above_all() {
        let floats = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, f64::MAX, f64::INFINITY, f64::NAN];
        for literal in floats.into_iter().chain([-f64::NAN]) {
            for value in floats.into_iter().chain([-f64::NAN]) {
                for comparison in expr::Comparison::ALL {
                    let holds = Condition::comparing(comparison, literal).holds(value);
                    let expected = comparison.holds(crate::compare_floats(value, literal));
                    assert_eq!(holds, expected, "{value} {comparison:?} {literal}");
                }
            }
        }
        for literal in [i32::MIN, -1, 0, i32::MAX] {
            for value in [i32::MIN, -1, 0, i32::MAX] {
                for comparison in expr::Comparison::ALL {
                    let holds = Condition::comparing(comparison, literal).holds(value);
                    assert_eq!(holds, comparison.holds(value.cmp(&literal)));
                }
            }
        }
    }

    #[test]
    fn conditions_agree_with_the_operators() {
        agrees(&[0u32, 1, 2, u32::MAX - 1, u32::MAX]);
        agrees(&[i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX]);
        let tiny = f32::from_bits(1);
        let mut floats = vec![f32::MIN, -1.0, -tiny, -0.0, 0.0, tiny, 1.0, f32::MAX];
        floats.extend([f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -f32::NAN]);
        agrees(&floats);
        agrees(&floats.iter().map(|&value| f64::from(value)).collect::<Vec<_>>());
    }
}
