//! The keys and values of one line, without a tree of them in between.

use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Calls `each` with every key of an object and its value as it is written. What is not one object
/// and nothing else is refused, and so is what `each` refuses.
pub(super) fn each_value<'l>(
    line: &'l [u8],
    each: &mut dyn FnMut(&str, &'l str) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut refusal = None;
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let object = Object { each, refusal: &mut refusal };
    let read = deserializer.deserialize_map(object).and_then(|()| deserializer.end());
    match (refusal, read) {
        (Some(refusal), _) => Err(refusal),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => {
            let place = match error.column() {
                0 => String::new(),
                column => format!(" at character {column}"),
            };
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or(&text);
            let message = format!("it is no JSON object ({what}{place}); write one on each line");
            Err(Refusal { column: None, message })
        }
    }
}

/// What is wrong with a line, and with which of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) column: Option<String>,
    pub(super) message: String,
}

struct Object<'o, 'l> {
    each: &'o mut dyn FnMut(&str, &'l str) -> Result<(), Refusal>,
    refusal: &'o mut Option<Refusal>,
}

impl<'l> Visitor<'l> for Object<'_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key<'l>>()? {
            let value: &'l RawValue = map.next_value()?;
            if let Err(refusal) = (self.each)(&key.0, value.get()) {
                *self.refusal = Some(refusal);
                return Err(serde::de::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// A key, borrowed unless something in it is escaped.
struct Key<'l>(Cow<'l, str>);

impl<'l> Deserialize<'l> for Key<'l> {
    fn deserialize<D: Deserializer<'l>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyText)
    }
}

struct KeyText;

impl<'l> Visitor<'l> for KeyText {
    type Value = Key<'l>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Key<'l>, E> {
        Ok(Key(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Key<'l>, E> {
        Ok(Key(Cow::Owned(text.to_owned())))
    }
}

/// The text of a JSON string as it is written, quotes and all.
pub(super) fn string_text(written: &str) -> Option<Cow<'_, str>> {
    let mut deserializer = serde_json::Deserializer::from_str(written);
    Key::deserialize(&mut deserializer).ok().map(|key| key.0)
}
