//! Comparisons with a literal, as ranges.

use crate::primitives::order::{Bits, Order, Ordered};

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

    fn always() -> Self {
        Self::within(T::Bits::default(), T::Bits::GREATEST)
    }

    fn never() -> Self {
        Self { outside: true, ..Self::always() }
    }
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
