//! A line of RMM's CSV.

use super::{
    LogAction, LogReadError, LoggedCall,
    csv::HEADER,
    read::{EXPECTED, shown},
};

const COLUMNS: usize = 6;

/// A field, and the column of the line where it starts.
struct Field<'a> {
    text: std::borrow::Cow<'a, str>,
    column: usize,
    line: usize,
}

impl Field<'_> {
    fn wrong(&self, expected: &str) -> LogReadError {
        let message = format!("expected {expected}, found {}", shown(&self.text));
        LogReadError::new(self.line, self.column, message)
    }

    fn decimal(&self, expected: &str) -> Result<u64, LogReadError> {
        // `parse` would also take a sign.
        let digits = self.text.bytes().all(|byte| byte.is_ascii_digit());
        self.text.parse().ok().filter(|_| digits).ok_or_else(|| self.wrong(expected))
    }

    /// A number in hexadecimal, with `0x` or without.
    fn hexadecimal(&self, expected: &str) -> Result<u64, LogReadError> {
        let digits = self.text.strip_prefix("0x").or_else(|| self.text.strip_prefix("0X"));
        let digits = digits.unwrap_or(&self.text);
        let valid = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| valid).ok_or_else(|| self.wrong(expected))
    }

    /// An address; C prints none as `(nil)`.
    fn pointer(&self) -> Result<u64, LogReadError> {
        if self.text == "(nil)" {
            return Ok(0);
        }
        self.hexadecimal("an address in hexadecimal, as 0x7f0000001000")
    }

    /// A stream: decimal, or a handle in hexadecimal.
    fn stream(&self) -> Result<u64, LogReadError> {
        const EXPECTED: &str = "a stream, as 0 or 0x5581c0d0a2e0";
        if self.text == "(nil)" {
            return Ok(0);
        }
        if self.text.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.decimal(EXPECTED);
        }
        self.hexadecimal(EXPECTED)
    }

    /// Nanoseconds since midnight; nothing, if nothing is there.
    fn time(&self) -> Result<Option<u64>, LogReadError> {
        if self.text.is_empty() {
            return Ok(None);
        }
        let wrong = || self.wrong("a time of day, as 10:43:21.123456");
        time_of_day(&self.text).map(Some).ok_or_else(wrong)
    }

    fn action(&self) -> Result<(LogAction, bool), LogReadError> {
        match &*self.text {
            "allocate" => Ok((LogAction::Allocate, true)),
            "allocate failure" => Ok((LogAction::Allocate, false)),
            "free" => Ok((LogAction::Free, true)),
            _ => Err(self.wrong("allocate, allocate failure or free")),
        }
    }
}

/// `10:43:21.123456`; some versions of RMM write a colon for the point.
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let hours = two_digits(parts.next()?, 24)?;
    let minutes = two_digits(parts.next()?, 60)?;
    let rest = parts.next()?;
    let (seconds, fraction) = rest.split_once(['.', ':']).unwrap_or((rest, "0"));
    // A leap second is the sixty-first.
    let seconds = two_digits(seconds, 61)?;
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.is_empty() || fraction.len() > 9 || !digits {
        return None;
    }
    let scale = 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let nanoseconds = fraction.parse::<u64>().ok()? * scale;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds)
}

fn two_digits(text: &str, limit: u64) -> Option<u64> {
    let valid = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| valid && *number < limit)
}

/// Takes the header, and nothing else.
pub(super) fn header(line: &str, number: usize) -> Result<(), LogReadError> {
    let fields = fields(line, number)?;
    if fields.iter().map(|field| &*field.text).eq(HEADER.split(',')) {
        return Ok(());
    }
    let message = format!("expected {EXPECTED}, found {}", shown(line));
    Err(LogReadError::new(number, 1, message))
}

/// Takes one line after the header.
pub(super) fn call(line: &str, number: usize) -> Result<LoggedCall, LogReadError> {
    let fields = fields(line, number)?;
    let Ok([thread, time, action, pointer, size, stream]) =
        <[Field<'_>; COLUMNS]>::try_from(fields)
    else {
        let column = line.chars().count() + 1;
        let message = format!("expected the {COLUMNS} fields {HEADER}; is the line cut short?");
        return Err(LogReadError::new(number, column, message));
    };
    let (action, ok) = action.action()?;
    Ok(LoggedCall {
        line: number,
        thread: thread.decimal("the number of a thread")?,
        time_ns: time.time()?,
        action,
        ok,
        pointer: pointer.pointer()?,
        bytes: size.decimal("a size in bytes")?,
        stream: stream.stream()?,
        access: None,
    })
}

/// The fields of a line: at most one more than there should be.
fn fields(line: &str, number: usize) -> Result<Vec<Field<'_>>, LogReadError> {
    let mut fields = Vec::with_capacity(COLUMNS);
    let (mut rest, mut column) = (line, 1);
    loop {
        let (field, after) = next_field(rest, number, column)?;
        fields.push(field);
        let Some(after) = after.filter(|_| fields.len() <= COLUMNS) else {
            return Ok(fields);
        };
        column += rest[..rest.len() - after.len()].chars().count();
        rest = after;
    }
}

/// The first field of `rest`, and what comes after its comma.
fn next_field(
    rest: &str,
    line: usize,
    column: usize,
) -> Result<(Field<'_>, Option<&str>), LogReadError> {
    let spaces = rest.len() - rest.trim_start_matches(' ').len();
    let column = column + spaces;
    let start = &rest[spaces..];
    let Some(quoted) = start.strip_prefix('"') else {
        let (text, after) = match start.split_once(',') {
            Some((text, after)) => (text, Some(after)),
            None => (start, None),
        };
        return Ok((Field { text: text.trim_end().into(), column, line }, after));
    };
    // A quote inside quotes is written twice.
    let mut from = 0;
    let end = loop {
        let Some(at) = quoted[from..].find('"').map(|at| at + from) else {
            let message = "expected a quote that ends this field; is the line cut short?";
            return Err(LogReadError::new(line, column, message));
        };
        if !quoted[at + 1..].starts_with('"') {
            break at;
        }
        from = at + 2;
    };
    let text = quoted[..end].replace("\"\"", "\"").into();
    let after = quoted[end + 1..].trim_start_matches(' ');
    let field = Field { text, column, line };
    if after.is_empty() {
        return Ok((field, None));
    }
    match after.strip_prefix(',') {
        Some(after) => Ok((field, Some(after))),
        None => Err(LogReadError::new(line, column, "expected a comma after the quoted field")),
    }
}
