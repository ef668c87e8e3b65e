//! Days as numbers, in the Gregorian calendar without end in either direction.

/// The day with a number, counted from 1 January 1970: its year, month and day.
///
/// ```
/// use xlog_core::calendar::civil_from_days;
///
/// assert_eq!(civil_from_days(-1), (1969, 12, 31));
/// ```
#[must_use]
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    // Years begin in March here, so that the day that comes and goes is the last one of a year;
    // eras of 400 years have the same number of days each.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

/// The number of a day, counted from 1 January 1970; `None` if there is no such day. Takes years
/// of up to fifteen digits.
///
/// ```
/// use xlog_core::calendar::{civil_from_days, days_from_civil};
///
/// assert_eq!(days_from_civil(1970, 1, 1), Some(0));
/// assert_eq!(days_from_civil(2023, 2, 29), None);
/// assert_eq!(days_from_civil(2024, 2, 29).map(civil_from_days), Some((2024, 2, 29)));
/// ```
#[must_use]
pub fn days_from_civil(year: i64, month: u32, day: u32) -> Option<i64> {
    const FARTHEST: i64 = 999_999_999_999_999;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // Nothing below overflows.
    if day == 0 || day > length || !(-FARTHEST..=FARTHEST).contains(&year) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((i64::from(month) + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_one_another() {
        let mut before = civil_from_days(-800_000);
        for days in -799_999..800_000 {
            let today = civil_from_days(days);
            assert_eq!(days_from_civil(today.0, today.1, today.2), Some(days));
            let (year, month, day) = before;
            let next = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)];
            let next = next.into_iter().find(|(y, m, d)| days_from_civil(*y, *m, *d).is_some());
            assert_eq!(Some(today), next);
            before = today;
        }
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(civil_from_days(19_782), (2024, 2, 29));
    }

    #[test]
    fn days_that_are_none() {
        for (year, month, day) in [(2024, 0, 1), (2024, 13, 1), (2024, 1, 0), (2024, 4, 31)] {
            assert_eq!(days_from_civil(year, month, day), None);
        }
        assert_eq!(days_from_civil(1900, 2, 29), None);
        assert!(days_from_civil(2000, 2, 29).is_some());
        assert_eq!(days_from_civil(i64::MAX, 1, 1), None);
        assert_eq!(days_from_civil(i64::MIN, 12, 31), None);
    }
}
