//! A CSV reader that is slow and plain to see through: one byte after the other, one thread.

use arrow_schema::{DataType, TimeUnit};

/// One field, as it was written and without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) text: Vec<u8>,
    pub(crate) quoted: bool,
    pub(crate) line: u64,
}

/// Where a text is at fault: the line, and the column if it is a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) line: u64,
    pub(crate) column: Option<usize>,
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) line: u64,
    pub(crate) fields: Vec<Field>,
}

/// All records up to the first fault, and that.
pub(crate) fn records(
    text: &[u8],
    delimiter: u8,
    quote: Option<u8>,
) -> (Vec<Record>, Option<Wrong>) {
    let mut records = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let mut record = Record { line, fields: Vec::new() };
        loop {
            let mut field = Field { text: Vec::new(), quoted: false, line };
            if quote.is_some() && text.get(at).copied() == quote {
                field.quoted = true;
                at += 1;
                loop {
                    match text.get(at) {
                        None => {
                            return (records, Some(Wrong { line: field.line, column: None }));
                        }
                        Some(byte) if Some(*byte) == quote => {
                            at += 1;
                            if text.get(at).copied() != quote {
                                break;
                            }
                        }
                        Some(b'\n') => line += 1,
                        Some(_) => {}
                    }
                    field.text.push(text[at]);
                    at += 1;
                }
                let ends = match &text[at..] {
                    [] | [b'\n', ..] | [b'\r'] | [b'\r', b'\n', ..] => true,
                    [next, ..] => *next == delimiter,
                };
                if !ends {
                    return (records, Some(Wrong { line, column: None }));
                }
                if text.get(at) == Some(&b'\r') && delimiter != b'\r' {
                    at += 1;
                }
            } else {
                while at < text.len() && text[at] != b'\n' && text[at] != delimiter {
                    if Some(text[at]) == quote {
                        return (records, Some(Wrong { line, column: None }));
                    }
                    field.text.push(text[at]);
                    at += 1;
                }
                if text.get(at) != Some(&delimiter) && field.text.last() == Some(&b'\r') {
                    field.text.pop();
                }
            }
            record.fields.push(field);
            let more = text.get(at) == Some(&delimiter);
            if text.get(at) == Some(&b'\n') {
                line += 1;
            }
            at += 1;
            if !more {
                break;
            }
        }
        records.push(record);
    }
    (records, None)
}

/// Whether a row is an empty line.
pub(crate) fn is_blank(record: &Record) -> bool {
    matches!(record.fields.as_slice(), [only] if only.text.is_empty() && !only.quoted)
}

/// The rows of a text with a header, as texts of their values, or where it is at fault. `types` has
/// each column's type, and whether it was inferred.
pub(crate) fn read(
    text: &[u8],
    delimiter: u8,
    quote: Option<u8>,
    types: &[(DataType, bool)],
) -> Result<Vec<Vec<Option<String>>>, Wrong> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let (records, fault) = records(text, delimiter, quote);
    let mut records = records.into_iter().skip_while(is_blank);
    records.next();
    let mut rows = Vec::new();
    for record in records {
        if types.len() > 1 && is_blank(&record) {
            continue;
        }
        if record.fields.len() != types.len() {
            return Err(Wrong { line: record.line, column: None });
        }
        let mut row = Vec::new();
        for (column, (field, (data_type, strict))) in record.fields.iter().zip(types).enumerate() {
            let wrong = Wrong { line: field.line, column: Some(column) };
            row.push(value(field, data_type, *strict).ok_or(wrong)?);
        }
        rows.push(row);
    }
    match fault {
        Some(wrong) => Err(wrong),
        None => Ok(rows),
    }
}

/// The text of a field's value, where it is one: `Some(None)` is no value, `None` a bad one.
#[allow(clippy::option_option)]
fn value(field: &Field, data_type: &DataType, strict: bool) -> Option<Option<String>> {
    let text = std::str::from_utf8(&field.text).ok();
    if matches!(data_type, DataType::Utf8 | DataType::Dictionary(_, _)) {
        return match text? {
            "" if !field.quoted => Some(None),
            text => Some(Some(text.to_owned())),
        };
    }
    let trimmed = field.text.trim_ascii();
    if trimmed.is_empty() {
        return Some(None);
    }
    let text = std::str::from_utf8(trimmed).ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_code = matches!(digits, [b'0', b'0'..=b'9', ..] | [b'+', ..]);
    let number = !matches!(
        data_type,
        DataType::Boolean | DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, None)
    );
    if strict && is_code && number {
        return None;
    }
    let parsed = match data_type {
        DataType::Boolean => match text {
            "true" | "True" | "TRUE" => Some("true".to_owned()),
            "false" | "False" | "FALSE" => Some("false".to_owned()),
            _ => None,
        },
        DataType::UInt32 => text.parse::<u32>().ok().map(|value| value.to_string()),
        DataType::UInt64 => text.parse::<u64>().ok().map(|value| value.to_string()),
        DataType::Int32 => text.parse::<i32>().ok().map(|value| value.to_string()),
        DataType::Int64 => text.parse::<i64>().ok().map(|value| value.to_string()),
        // A number is never infinite, however large: it is refused.
        DataType::Float32 => {
            let value = text.parse::<f32>().ok();
            let value = value.filter(|value| !value.is_infinite() || text.contains(['i', 'I']));
            value.map(|value| format!("{value:?}"))
        }
        DataType::Float64 => {
            let value = text.parse::<f64>().ok();
            let value = value.filter(|value| !value.is_infinite() || text.contains(['i', 'I']));
            value.map(|value| format!("{value:?}"))
        }
        DataType::Date32 => {
            moment(text).filter(|(_, _, day)| *day).map(|(days, _, _)| format!("{days}"))
        }
        _ => moment(text).map(|(days, micros, _)| {
            (i128::from(days) * 86_400_000_000 + i128::from(micros)).to_string()
        }),
    };
    parsed.map(Some)
}

/// Days, microseconds of the day, and whether there is nothing but a day.
fn moment(text: &str) -> Option<(i64, i64, bool)> {
    let bytes = text.as_bytes();
    let signed = matches!(bytes.first(), Some(b'+' | b'-'));
    let dash = usize::from(signed) + text[usize::from(signed)..].find('-')?;
    let digits = &text[usize::from(signed)..dash];
    let fits = digits.len() == 4 || (signed && (4..=7).contains(&digits.len()));
    if !fits || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let sign = if bytes.first() == Some(&b'-') { -1 } else { 1 };
    let year = sign * digits.parse::<i64>().ok()?;
    let rest = text.get(dash..)?.as_bytes();
    let two = |at: usize| -> Option<i64> {
        let pair = rest.get(at..at + 2)?;
        let digits = pair.iter().all(u8::is_ascii_digit);
        digits.then(|| i64::from(pair[0] - b'0') * 10 + i64::from(pair[1] - b'0'))
    };
    let byte = |at: usize| rest.get(at).copied();
    let (month, day) = (two(1)?, two(4)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month - 1).ok()?)?;
    if byte(3) != Some(b'-') || day < 1 || day > length {
        return None;
    }
    let years_before = year - 1;
    let leaps =
        years_before.div_euclid(4) - years_before.div_euclid(100) + years_before.div_euclid(400);
    let in_year: i64 = lengths[..month as usize - 1].iter().sum::<i64>() + day - 1;
    let days = years_before * 365 + leaps + in_year - 719_162;
    if rest.len() == 6 {
        return Some((days, 0, true));
    }
    let (hour, minute) = (two(7)?, two(10)?);
    if !matches!(byte(6), Some(b'T' | b' ')) || byte(9) != Some(b':') {
        return None;
    }
    let mut at = 12;
    let mut second = 0;
    if byte(at) == Some(b':') {
        second = two(at + 1)?;
        at += 3;
    }
    let mut micros = 0;
    if byte(at) == Some(b'.') {
        at += 1;
        let digits: Vec<u8> = rest[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
        if digits.is_empty() || digits.iter().skip(6).any(|digit| *digit != b'0') {
            return None;
        }
        at += digits.len();
        for place in 0..6 {
            micros = micros * 10 + digits.get(place).map_or(0, |digit| i64::from(digit - b'0'));
        }
    }
    if byte(at) == Some(b'Z') {
        at += 1;
    }
    let fits = at == rest.len() && hour < 24 && minute < 60 && second < 60;
    let micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    let all = i128::from(days) * 86_400_000_000 + i128::from(micros);
    (fits && i64::try_from(all).is_ok()).then_some((days, micros, false))
}
