//! Integers.

use super::word::{digits_value, padded_digits};

/// The value of up to 16 digits.
#[inline(always)]
fn digits(text: &[u8]) -> Option<u64> {
    match text.len() {
        1..=8 => digits_value(padded_digits(text)),
        9..=16 => {
            let (high, low) = text.split_at(text.len() - 8);
            let (high, low) = (padded_digits(high), padded_digits(low));
            Some(digits_value(high)? * 100_000_000 + digits_value(low)?)
        }
        _ => None,
    }
}

/// Whatever is long, or starts with a plus.
#[cold]
fn long<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An integer of 64 bits.
#[inline]
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits(rest) {
        Some(value) => {
            let value = value.cast_signed();
            Some(if negative { -value } else { value })
        }
        None => long(text),
    }
}

/// An integer of 32 bits.
#[inline]
pub(crate) fn parse_i32(text: &[u8]) -> Option<i32> {
    parse_i64(text).and_then(|value| i32::try_from(value).ok())
}

/// An integer of 64 bits without a sign.
#[inline]
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    digits(text).or_else(|| long(text))
}

/// An integer of 32 bits without a sign.
#[inline]
pub(crate) fn parse_u32(text: &[u8]) -> Option<u32> {
    parse_u64(text).and_then(|value| u32::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_standard_library() {
        let texts = [
            "",
            "-",
            "+",
            "0",
            "-0",
            "+7",
            "007",
            "-12",
            "12a",
            " 1",
            "1 ",
            "1_000",
            "1.0",
            "--1",
            "999999999999999999",
            "1000000000000000000",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "18446744073709551616",
            "4294967295",
            "4294967296",
            "2147483647",
            "-2147483648",
            "2147483648",
            "00000000000000000000000000001",
            "\u{b2}",
        ];
        for text in texts {
            assert_eq!(parse_i64(text.as_bytes()), text.parse().ok(), "{text:?}");
            assert_eq!(parse_i32(text.as_bytes()), text.parse().ok(), "{text:?}");
            assert_eq!(parse_u64(text.as_bytes()), text.parse().ok(), "{text:?}");
            assert_eq!(parse_u32(text.as_bytes()), text.parse().ok(), "{text:?}");
        }
    }
}
