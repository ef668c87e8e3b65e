//! A line of our own JSON.

use serde_json::{Map, Value};

use super::{
    LogAction, LogReadError, LoggedCall,
    read::shown,
    record::{access_from_name, access_name},
};
use crate::device_runtime::Access;

/// The members of one line's object.
struct Members {
    map: Map<String, Value>,
    line: usize,
    /// Where each member stands is not known any more; the object is.
    column: usize,
}

impl Members {
    fn wrong(&self, name: &str, expected: &str) -> LogReadError {
        let message = match self.map.get(name) {
            Some(found) => {
                format!("expected {name:?} to be {expected}, found {}", shown(&found.to_string()))
            }
            None => format!("expected {name:?}, {expected}; is this a log of JsonLinesSink?"),
        };
        LogReadError::new(self.line, self.column, message)
    }

    /// A number that may be missing.
    fn number(&self, name: &str) -> Result<Option<u64>, LogReadError> {
        match self.map.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, "a whole number below 2^64")),
            },
        }
    }

    fn text(&self, name: &str, expected: &str) -> Result<&str, LogReadError> {
        self.map.get(name).and_then(Value::as_str).ok_or_else(|| self.wrong(name, expected))
    }

    fn action(&self) -> Result<LogAction, LogReadError> {
        let expected = LogAction::ALL.map(LogAction::name).join(", ");
        let expected = format!("one of {expected}");
        let name = self.text("action", &expected)?;
        LogAction::from_name(name).ok_or_else(|| self.wrong("action", &expected))
    }

    fn address(&self) -> Result<Option<u64>, LogReadError> {
        const EXPECTED: &str = "an address in hexadecimal, as \"0x7f0000001000\"";
        if !self.map.contains_key("address") {
            return Ok(None);
        }
        let digits = self.text("address", EXPECTED)?.strip_prefix("0x");
        digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Some)
            .ok_or_else(|| self.wrong("address", EXPECTED))
    }

    fn access(&self) -> Result<Access, LogReadError> {
        let accesses = [Access::Read, Access::Write, Access::ReadWrite];
        let expected = format!("one of {}", accesses.map(access_name).join(", "));
        let name = self.text("access", &expected)?;
        access_from_name(name).ok_or_else(|| self.wrong("access", &expected))
    }

    fn ok(&self) -> Result<bool, LogReadError> {
        let value = self.map.get("ok").and_then(Value::as_bool);
        value.ok_or_else(|| self.wrong("ok", "true or false"))
    }
}

/// Takes one line.
pub(super) fn call(line: &str, number: usize) -> Result<LoggedCall, LogReadError> {
    let column = line.chars().take_while(|c| c.is_whitespace()).count() + 1;
    let members = match serde_json::from_str(line) {
        Ok(Value::Object(map)) => Members { map, line: number, column },
        Ok(_) => return Err(LogReadError::new(number, column, "expected a JSON object")),
        Err(error) => {
            let column = character(line, error.column());
            let message = format!("expected a JSON object on this line: {}", reason(&error));
            return Err(LogReadError::new(number, column, message));
        }
    };
    let (action, ok) = (members.action()?, members.ok()?);
    let is_use = matches!(action, LogAction::Prepare | LogAction::Finish);
    let is_memory = matches!(action, LogAction::Allocate | LogAction::Free);
    let (bytes, stream) = (members.number("bytes")?, members.number("stream")?);
    let (asked, address) = (members.number("asked")?, members.address()?);
    if stream.is_none() && (is_use || is_memory) {
        return Err(members.wrong("stream", "a number"));
    }
    if bytes.is_none() && is_memory {
        return Err(members.wrong("bytes", "a size"));
    }
    // An allocation that failed is the one of these calls that has none.
    if address.is_none() && (is_use || is_memory) && (ok || action != LogAction::Allocate) {
        return Err(members.wrong("address", "an address"));
    }
    Ok(LoggedCall {
        line: number,
        thread: members.number("thread")?.ok_or_else(|| members.wrong("thread", "a number"))?,
        time_ns: members.number("time_ns")?,
        action,
        ok,
        pointer: address.unwrap_or_default(),
        bytes: asked.or(bytes).unwrap_or_default(),
        stream: stream.unwrap_or_default(),
        access: if is_use { Some(members.access()?) } else { None },
    })
}

/// The column of the character that a byte column of `serde_json` falls on.
fn character(line: &str, byte_column: usize) -> usize {
    let bytes = byte_column.saturating_sub(1);
    line.char_indices().take_while(|(at, _)| *at < bytes).count() + 1
}

/// The error without the place it names: the line is always 1.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
