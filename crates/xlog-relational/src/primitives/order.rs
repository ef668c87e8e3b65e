//! Orders of values as orders of unsigned bits.
//!
//! Sorting and comparing work on bits. A type takes part by a change of its bits after which their
//! unsigned order is the order of the values: none for unsigned integers, an inverted sign bit for
//! signed ones, and for floats every other bit inverted too where the sign is set. That is
//! [`f32::total_cmp`]: negative NaNs first, positive NaNs last, -0.0 before 0.0.

use std::{
    fmt::Debug,
    ops::{BitAnd, BitOr, BitXor, Not},
};

use xlog_cuda::launch::DeviceElement;

/// The bits of a value: `u32` or `u64`.
pub trait Bits:
    DeviceElement
    + Ord
    + Send
    + Sync
    + Debug
    + Default
    + BitXor<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
    + sealed::Sealed
{
    /// How many there are.
    const COUNT: u32;
    /// The greatest value.
    const GREATEST: Self;
    /// The bit that is the sign of signed and floating-point values.
    const SIGN: Self;

    /// `count` bits from `first` on; fewer than 32 of them.
    #[doc(hidden)]
    fn digit(self, first: u32, count: u32) -> usize;
    /// All ones if the sign is set, else zero.
    #[doc(hidden)]
    fn spread_sign(self) -> Self;
    /// The difference, wrapping.
    #[doc(hidden)]
    fn minus(self, other: Self) -> Self;
    /// The next greater bits, wrapping.
    #[doc(hidden)]
    fn next(self) -> Self;
    /// The next smaller bits, wrapping.
    #[doc(hidden)]
    fn previous(self) -> Self;
    /// The bits from `first` to `end`, where they stand; the others zero.
    #[doc(hidden)]
    fn between(self, first: u32, end: u32) -> Self;
    /// The number of the highest bit that is set, if one is.
    #[doc(hidden)]
    fn highest(self) -> Option<u32>;
}

/// A value whose order is an order of bits.
pub trait Ordered: DeviceElement + PartialOrd + Send + Sync + Debug + sealed::Sealed {
    /// Its bits.
    type Bits: Bits;
    /// All bits but the sign for floats, else none: what a set sign inverts.
    const MAGNITUDE: Self::Bits;
    /// The sign bit if there is one, else none: what is always inverted.
    const FLIP: Self::Bits;

    /// The least and the greatest value that compare with others: the infinities of floats.
    const ENDS: (Self, Self);

    /// The value's bits as they lie in memory.
    #[must_use]
    fn to_bits(self) -> Self::Bits;

    /// The value's bits after the change that orders them.
    #[must_use]
    fn to_ordered(self) -> Self::Bits {
        Order::of::<Self>(false).apply(self.to_bits())
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! bits {
    ($($bits:ty),*) => {$(
        impl sealed::Sealed for $bits {}
        impl Bits for $bits {
            const COUNT: u32 = <$bits>::BITS;
            const GREATEST: Self = <$bits>::MAX;
            const SIGN: Self = 1 << (<$bits>::BITS - 1);

            #[inline(always)]
            fn digit(self, first: u32, count: u32) -> usize {
                (self >> first) as usize & ((1 << count) - 1)
            }
            #[inline(always)]
            fn spread_sign(self) -> Self {
                Self::default().wrapping_sub(self >> (<$bits>::BITS - 1))
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn next(self) -> Self {
                self.wrapping_add(1)
            }
            fn previous(self) -> Self {
                self.wrapping_sub(1)
            }
            fn between(self, first: u32, end: u32) -> Self {
                if first >= end {
                    return 0;
                }
                let above = <$bits>::BITS - end;
                ((self << above) >> (above + first)) << first
            }
            fn highest(self) -> Option<u32> {
                self.checked_ilog2()
            }
        }
        impl Ordered for $bits {
            type Bits = $bits;
            const MAGNITUDE: $bits = 0;
            const FLIP: $bits = 0;
            const ENDS: ($bits, $bits) = (<$bits>::MIN, <$bits>::MAX);
            fn to_bits(self) -> $bits {
                self
            }
        }
    )*};
}

macro_rules! ordered {
    ($($value:ty, $bits:ty, $magnitude:expr, $to_bits:expr, $least:ident, $greatest:ident;)*) => {$(
        impl sealed::Sealed for $value {}
        impl Ordered for $value {
            type Bits = $bits;
            const MAGNITUDE: $bits = $magnitude;
            const FLIP: $bits = <$bits as Bits>::SIGN;
            const ENDS: ($value, $value) = (<$value>::$least, <$value>::$greatest);
            fn to_bits(self) -> $bits {
                $to_bits(self)
            }
        }
    )*};
}

bits!(u32, u64);
ordered! {
    i32, u32, 0, i32::cast_unsigned, MIN, MAX;
    i64, u64, 0, i64::cast_unsigned, MIN, MAX;
    f32, u32, !u32::SIGN, f32::to_bits, NEG_INFINITY, INFINITY;
    f64, u64, !u64::SIGN, f64::to_bits, NEG_INFINITY, INFINITY;
}

/// A change of bits; the default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order<B> {
    /// What a set sign inverts; never the sign itself.
    pub(crate) magnitude: B,
    /// What is always inverted.
    pub(crate) flip: B,
}

impl<B: Bits> Order<B> {
    /// The order of `V`'s values, or the opposite one.
    pub(crate) fn of<V: Ordered<Bits = B>>(descending: bool) -> Self {
        let all = if descending { B::GREATEST } else { B::default() };
        Self { magnitude: V::MAGNITUDE, flip: V::FLIP ^ all }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    #[inline(always)]
    pub(crate) fn apply(&self, bits: B) -> B {
        bits ^ (bits.spread_sign() & self.magnitude) ^ self.flip
    }

    /// Takes [`apply`](Self::apply) back: the sign survives it, so the same bits are inverted.
    #[inline(always)]
    pub(crate) fn undo(&self, bits: B) -> B {
        let flipped = bits ^ self.flip;
        flipped ^ (flipped.spread_sign() & self.magnitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_bits_compare_as_values_do_and_come_back() {
        let floats = [f32::NEG_INFINITY, -1.5, -f32::MIN_POSITIVE, -0.0, 0.0, 1e-40, 7.0, f32::MAX];
        let mut values = vec![f32::from_bits(!0), f32::from_bits(0xffc0_0000)];
        values.extend(floats);
        values.extend([f32::INFINITY, f32::NAN, f32::from_bits(0x7fff_ffff)]);
        assert!(values.windows(2).all(|pair| pair[0].to_ordered() < pair[1].to_ordered()));
        for descending in [false, true] {
            let order = Order::of::<f32>(descending);
            assert!(values.iter().all(|v| order.undo(order.apply(v.to_bits())) == v.to_bits()));
            let order = Order::of::<i64>(descending);
            assert!([i64::MIN, -1, 0, i64::MAX].iter().all(|v| {
                let bits = v.cast_unsigned();
                order.undo(order.apply(bits)) == bits
            }));
        }
        assert!(i32::MIN.to_ordered() < (-1).to_ordered() && (-1).to_ordered() < 0.to_ordered());
    }

    #[test]
    fn bits_between_stay_where_they_are() {
        assert_eq!(0xffff_ffffu32.between(4, 12), 0xff0);
        assert_eq!(0xffff_ffffu32.between(0, 32), 0xffff_ffff);
        assert_eq!(u64::MAX.between(63, 64), 1 << 63);
        assert_eq!(u64::MAX.between(9, 9), 0);
    }
}
