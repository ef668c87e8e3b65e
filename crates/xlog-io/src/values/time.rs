//! Days and moments, as ISO 8601 writes them.

use xlog_core::calendar::days_from_civil;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

fn two_digits(text: [u8; 2]) -> Option<u32> {
    let [tens, ones] = text.map(|byte| byte.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| u32::from(tens) * 10 + u32::from(ones))
}

/// A year of four digits, or of up to six with a sign before them, and what follows it.
fn year(text: &[u8]) -> Option<(i64, &[u8])> {
    let signed = matches!(text.first(), Some(b'-' | b'+'));
    let digits = text.get(usize::from(signed)..)?;
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length < 4 || length > if signed { 7 } else { 4 } {
        return None;
    }
    let (digits, rest) = digits.split_at(length);
    let value = digits.iter().fold(0, |value, byte| value * 10 + i64::from(byte - b'0'));
    Some((if text[0] == b'-' { -value } else { value }, rest))
}

/// A day, `YYYY-MM-DD`, as days from 1970-01-01, and what follows it.
fn date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (year, rest) = year(text)?;
    let [b'-', m, n, b'-', d, e, rest @ ..] = rest else { return None };
    let (month, day) = (two_digits([*m, *n])?, two_digits([*d, *e])?);
    Some((days_from_civil(year, month, day)?, rest))
}

/// Days from the first of a year of 365 days to the first of each month, and how long that is.
const MONTHS: [(u32, u32); 12] = [
    (0, 31),
    (31, 28),
    (59, 31),
    (90, 30),
    (120, 31),
    (151, 30),
    (181, 31),
    (212, 31),
    (243, 30),
    (273, 31),
    (304, 30),
    (334, 31),
];

/// A day of the years from 0001 to 9999 as most are written, as days from 1970-01-01.
#[inline]
fn common_date(text: &[u8; 10]) -> Option<i32> {
    let [y, e, a, r, b'-', m, n, b'-', d, f] = *text else { return None };
    let digits = [y, e, a, r, m, n, d, f].map(|byte| byte.wrapping_sub(b'0'));
    if digits.iter().any(|digit| *digit > 9) {
        return None;
    }
    let [y, e, a, r, m, n, d, f] = digits.map(u32::from);
    let (year, month, day) = (y * 1000 + e * 100 + a * 10 + r, m * 10 + n, d * 10 + f);
    let (before, length) = *MONTHS.get(month.wrapping_sub(1) as usize)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if year == 0 || day == 0 || day > length + u32::from(leap && month == 2) {
        return None;
    }
    let past = year - 1;
    let days = past * 365 + past / 4 - past / 100 + past / 400;
    let of_year = before + u32::from(leap && month > 2) + day - 1;
    Some((days + of_year).cast_signed() - 719_162)
}

/// A day as days from 1970-01-01.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    if let Some(days) = <&[u8; 10]>::try_from(text).ok().and_then(common_date) {
        return Some(days);
    }
    let (days, rest) = date(text)?;
    rest.is_empty().then(|| i32::try_from(days).ok())?
}

/// A moment, as microseconds from the start of 1970: a day, a `T` or a space, hours and minutes,
/// perhaps seconds and up to six digits of a fraction (more if they are zeroes), perhaps a `Z`. A
/// day alone is its midnight.
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let (days, rest) = date(text)?;
    let midnight = days.checked_mul(DAY);
    if rest.is_empty() {
        return midnight;
    }
    let [b'T' | b' ', h, i, b':', m, n, rest @ ..] = rest else { return None };
    let (hour, minute) = (two_digits([*h, *i])?, two_digits([*m, *n])?);
    let (second, rest) = match rest {
        [b':', s, t, rest @ ..] => (two_digits([*s, *t])?, rest),
        rest => (0, rest),
    };
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => fraction(rest)?,
        rest => (0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 || !matches!(rest, [] | [b'Z']) {
        return None;
    }
    let of_day = i64::from((hour * 60 + minute) * 60 + second) * SECOND + fraction;
    // The first moments there are lie on a day whose midnight is none.
    i64::try_from(i128::from(days) * i128::from(DAY) + i128::from(of_day)).ok()
}

/// Digits behind a point as microseconds, and what follows them.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    let finer = digits.get(6..).unwrap_or(&[]);
    if length == 0 || finer.iter().any(|byte| *byte != b'0') {
        return None;
    }
    let padded = digits.iter().chain(std::iter::repeat(&b'0')).take(6);
    Some((padded.fold(0, |value, byte| value * 10 + i64::from(byte - b'0')), rest))
}

#[cfg(test)]
mod tests {
    use xlog_core::calendar::civil_from_days;

    use super::*;

    #[test]
    fn days_go_both_ways() {
        assert_eq!(parse_date(b"1970-01-01"), Some(0));
        assert_eq!(parse_date(b"2000-02-29"), Some(11_016));
        assert_eq!(parse_date(b"1969-12-31"), Some(-1));
        assert_eq!(parse_date(b"0000-01-01"), Some(-719_528));
        for days in (-1_000_000..4_000_000).step_by(7) {
            let (year, month, day) = civil_from_days(days);
            let text = format!("{year:04}-{month:02}-{day:02}");
            if let Ok(text) = text.as_bytes().try_into()
                && (1..10_000).contains(&year)
            {
                assert_eq!(common_date(text).map(i64::from), Some(days));
            }
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "2024",
            "2024-1-1",
            "2024-13-01",
            "2023-02-29",
            "1900-02-29",
            "2024-04-31",
            "2024-00-10",
            "2024-01-00",
            "2024-01-01x",
            "24-01-01",
            "02024-01-01",
            "2024/01/01",
        ] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn moments_count_microseconds() {
        let cases = [
            ("1970-01-01T00:00:01", SECOND),
            ("1970-01-01 00:01", 60 * SECOND),
            ("1970-01-01 00:00:00.5", SECOND / 2),
            ("1970-01-01 00:00:00.000001Z", 1),
            ("1970-01-01 00:00:00.000001000", 1),
            ("1969-12-31T23:59:59.999999", -1),
            ("1970-01-02", DAY),
            ("-290308-12-21T19:59:05.224192", i64::MIN),
            ("+294247-01-10T04:00:54.775807", i64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_timestamp(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [
            "1970-01-01T",
            "1970-01-01T1:00",
            "1970-01-01T24:00",
            "1970-01-01T00:60",
            "1970-01-01T00:00:60",
            "1970-01-01T00:00:00.",
            "1970-01-01T00:00:00.0000001",
            "1970-01-01T00:00:00+02:00",
            "+294247-01-10T04:00:54.775808",
        ] {
            assert_eq!(parse_timestamp(text.as_bytes()), None, "{text}");
        }
    }
}
