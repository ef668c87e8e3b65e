//! Floating point numbers, each the nearest to its text.
//!
//! Short decimals are a whole number times or over a power of ten, both without error in a float:
//! one operation rounds once, and so rightly. All others go to the standard library.

use super::word::{digits_value, without_point};

const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Digits with a point or none, as a whole number and how many digits stand behind the point.
#[inline(always)]
fn short_decimal(text: &[u8]) -> Option<(u64, usize)> {
    if (2..=8).contains(&text.len())
        && let Some((digits, behind)) = without_point(text)
    {
        return digits_value(digits).map(|value| (value, behind));
    }
    // Of 17 characters at most 17 are digits, which a u64 has room for.
    if text.len() > 17 {
        return None;
    }
    let mut value = 0u64;
    let mut point = None;
    for (place, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value * 10 + u64::from(digit);
        } else if *byte == b'.' && point.is_none() {
            point = Some(place);
        } else {
            return None;
        }
    }
    let behind = point.map_or(0, |place| text.len() - place - 1);
    let digits = text.len() - usize::from(point.is_some());
    (digits > 0).then_some((value, behind))
}

#[inline(always)]
fn unsigned(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    }
}

/// Exponents, long numbers, and the values that are no number. One too large for its type is none
/// of it, rather than infinity.
#[cold]
fn long<T: std::str::FromStr + Copy + Into<f64>>(text: &[u8]) -> Option<T> {
    let value: T = std::str::from_utf8(text).ok()?.parse().ok()?;
    let too_large = value.into().is_infinite() && text.iter().any(u8::is_ascii_digit);
    (!too_large).then_some(value)
}

/// The nearest float of 64 bits.
#[inline]
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    let (negative, rest) = unsigned(text);
    match short_decimal(rest) {
        Some((value, behind)) if value < 1 << 53 => {
            let value = value as f64 / POWERS[behind];
            Some(if negative { -value } else { value })
        }
        _ => long(text),
    }
}

/// The nearest float of 32 bits.
#[inline]
pub(crate) fn parse_f32(text: &[u8]) -> Option<f32> {
    let (negative, rest) = unsigned(text);
    match short_decimal(rest) {
        // Powers of ten up to the tenth have no error in 32 bits either.
        Some((value, behind)) if value < 1 << 24 && behind <= 10 => {
            let value = value as f32 / POWERS[behind] as f32;
            Some(if negative { -value } else { value })
        }
        _ => long(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agrees(text: &str) {
        let named = text.contains("inf");
        let expected = text.parse().ok().filter(|value: &f64| !value.is_infinite() || named);
        let bits = |value: Option<f64>| value.map(f64::to_bits);
        assert_eq!(bits(parse_f64(text.as_bytes())), bits(expected), "{text:?}");
        let expected = text.parse().ok().filter(|value: &f32| !value.is_infinite() || named);
        let bits = |value: Option<f32>| value.map(f32::to_bits);
        assert_eq!(bits(parse_f32(text.as_bytes())), bits(expected), "{text:?}");
    }

    #[test]
    fn odd_floats_are_those_of_the_standard_library() {
        let texts = [
            "",
            "-",
            ".",
            "-.",
            "0",
            "-0",
            "-0.0",
            ".5",
            "5.",
            "1.5",
            "1..5",
            "1.5.5",
            "+1.5",
            "1e5",
            "1e",
            "inf",
            "-inf",
            "NaN",
            "nan",
            "infinity",
            "9007199254740993",
            "9007199254740993.0",
            "0.1",
            "0.30000000000000004",
            "123456789012345.67",
            "16777217",
            "0.0000000000000001",
            "1.7976931348623157e308",
            "1e400",
            "5e-324",
            "12345.67a",
            "٣",
        ];
        texts.into_iter().for_each(agrees);
    }

    proptest! {
        #[test]
        fn floats_are_those_of_the_standard_library(
            text in "-?[0-9]{0,12}[.]?[0-9]{0,12}(e-?[0-9]{1,3})?",
        ) {
            agrees(&text);
        }
    }
}
