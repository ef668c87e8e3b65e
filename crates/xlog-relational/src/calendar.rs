//! Dates and times of day as text, in the Gregorian calendar without end in either direction.
//!
//! A date is written `2024-01-31`, a timestamp `2024-01-31 12:30:00` with up to six digits after
//! the seconds. Years beyond four digits carry a sign.

use std::fmt;

use xlog_core::calendar;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Days since 1 January 1970 as a year, a month and a day.
#[must_use]
pub fn civil_from_days(days: i32) -> (i64, u32, u32) {
    calendar::civil_from_days(days.into())
}

/// A day of the calendar as days since 1 January 1970; `None` if there is no such day.
///
/// ```
/// use xlog_relational::calendar::{civil_from_days, days_from_civil};
///
/// assert_eq!(days_from_civil(1970, 1, 1), Some(0));
/// assert_eq!(days_from_civil(2024, 2, 30), None);
/// assert_eq!(days_from_civil(2024, 2, 29).map(civil_from_days), Some((2024, 2, 29)));
/// ```
#[must_use]
pub fn days_from_civil(year: i64, month: u32, day: u32) -> Option<i32> {
    calendar::days_from_civil(year, month, day)?.try_into().ok()
}

/// The date a text stands for, in days since 1 January 1970.
#[must_use]
pub fn parse_date(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let mut parts = digits.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let long = digits.len() < text.len();
    let year_fits = if long { (4..=7).contains(&year.len()) } else { year.len() == 4 };
    if parts.next().is_some() || !year_fits {
        return None;
    }
    days_from_civil(sign * i64::from(number(year)?), two_digits(month)?, two_digits(day)?)
}

/// The timestamp a text stands for, in microseconds since 1 January 1970. Between date and time
/// stands a space or a `T`; seconds and what is below may be left out, and the time as a whole.
#[must_use]
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (date, parse_time(time)?),
        None => (text, 0),
    };
    // The first day that has timestamps begins before they do.
    let midnight = i128::from(parse_date(date)?) * i128::from(DAY);
    i64::try_from(midnight + i128::from(time)).ok()
}

fn parse_time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.split(':');
    let (hour, minute) = (two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let second = parts.next().map_or(Some(0), two_digits)?;
    let has_fraction = clock.len() < text.len();
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if fraction.is_empty() || fraction.len() > 6 || (has_fraction && clock.len() != 8) {
        return None;
    }
    let scale = 10i64.pow(6 - fraction.len() as u32);
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    Some(seconds * SECOND + i64::from(number(fraction)?) * scale)
}

fn two_digits(text: &str) -> Option<u32> {
    if text.len() == 2 { number(text) } else { None }
}

/// A number of up to nine digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let digits = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// A date as text.
///
/// ```
/// use xlog_relational::calendar::{DateText, parse_date};
///
/// assert_eq!(parse_date("2024-01-31").map(|days| DateText(days).to_string()).as_deref(),
///            Some("2024-01-31"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DateText(
    /// Days since 1 January 1970.
    pub i32,
);

impl fmt::Display for DateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0);
        match year {
            0..=9999 => write!(f, "{year:04}-{month:02}-{day:02}"),
            _ => write!(f, "{year:+05}-{month:02}-{day:02}"),
        }
    }
}

/// A timestamp as text.
#[derive(Clone, Copy, Debug)]
pub struct TimestampText(
    /// Microseconds since 1 January 1970.
    pub i64,
);

impl fmt::Display for TimestampText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, time) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        let (seconds, micros) = (time / SECOND, time % SECOND);
        // An i64 of microseconds is less than 2^27 days.
        DateText(days as i32).fmt(f)?;
        write!(f, " {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if micros == 0 {
            return Ok(());
        }
        let digits = format!("{micros:06}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn days_follow_each_other() {
        let mut expected = days_from_civil(1599, 12, 31).unwrap();
        for year in 1600..2450 {
            for month in 1..=12 {
                for day in 1..=31 {
                    if let Some(days) = days_from_civil(year, month, day) {
                        expected += 1;
                        assert_eq!((days, civil_from_days(days)), (expected, (year, month, day)));
                    }
                }
            }
        }
        assert_eq!(parse_date("2000-03-01"), Some(11_017));
        assert_eq!(parse_date("1969-12-31"), Some(-1));
    }

    #[test]
    fn what_is_no_date_or_time_is_refused() {
        for text in [
            "",
            "-",
            "2024",
            "2024-1-31",
            "2024-01-32",
            "2023-02-29",
            "24-01-01",
            "2024-01-01x",
            "2024-13-01",
            "2024-00-01",
            "2024-01-00",
            "+-2024-01-01",
            "2024-01-01-01",
            "é024-01-01",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in [
            "2024-01-01 24:00",
            "2024-01-01 12",
            "2024-01-01 12:60",
            "2024-01-01 12:00:00.",
            "2024-01-01 12:00:00.1234567",
            "2024-01-01 12:00.5",
            "2024-01-01  12:00",
            "2024-01-01 1:00:00",
            "12:00:00",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
        assert_eq!(parse_timestamp("1970-01-02T00:00:00.5"), Some(DAY + 500_000));
        assert_eq!(parse_timestamp("1970-01-01 00:01"), Some(60 * SECOND));
        assert_eq!(parse_timestamp("1969-12-31"), Some(-DAY));
        for end in [i64::MIN, i64::MAX] {
            assert_eq!(parse_timestamp(&TimestampText(end).to_string()), Some(end));
        }
    }

    proptest! {
        #[test]
        fn every_date_and_timestamp_comes_back_from_its_text(days: i32, micros: i64) {
            prop_assert_eq!(parse_date(&DateText(days).to_string()), Some(days));
            prop_assert_eq!(parse_timestamp(&TimestampText(micros).to_string()), Some(micros));
        }

        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            let _ = (parse_date(&text), parse_timestamp(&text));
        }
    }
}
