//! The recording as one page that needs nothing but a browser.
//!
//! The page is a few files of this crate, put together with the recording as JSON. Nothing is
//! fetched from anywhere: the page forbids itself to.

mod data;

use std::io::{self, Write};

use crate::Recording;

/// A hazard that a checked device found, as the report shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    /// What it is called, in a few words.
    pub title: String,
    /// All that is known about it.
    pub text: String,
}

const BODY: &str = include_str!("../../assets/report.html");
const STYLE: &str = include_str!("../../assets/report.css");

/// The parts of the script, in the order in which they need each other.
const SCRIPTS: [&str; 6] = [
    include_str!("../../assets/model.js"),
    include_str!("../../assets/view.js"),
    include_str!("../../assets/timeline.js"),
    include_str!("../../assets/pointer.js"),
    include_str!("../../assets/memory.js"),
    include_str!("../../assets/tables.js"),
];
const MAIN: &str = include_str!("../../assets/main.js");

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">
<title>xlog report</title>
<link rel=\"icon\" href=\"data:,\">
";

impl Recording {
    /// Writes the recording as a page. `hazards` is what a checked device found; `None` if the
    /// device was not checked.
    pub fn write_report(
        &self,
        output: &mut dyn Write,
        hazards: Option<&[Hazard]>,
    ) -> io::Result<()> {
        output.write_all(HEAD.as_bytes())?;
        write!(output, "<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}")?;
        output.write_all(b"<script type=\"application/json\" id=\"data\">\n")?;
        data::write(self, hazards, &mut Escaped(output))?;
        output.write_all(b"</script>\n<script>\n(() => {\n\"use strict\";\n")?;
        for script in SCRIPTS.iter().chain([&MAIN]) {
            output.write_all(script.as_bytes())?;
        }
        output.write_all(b"})();\n</script>\n</body>\n</html>\n")
    }
}

/// Passes JSON on in a form that cannot end the element it stands in: `<` is written as an escape,
/// which JSON knows and HTML does not. It is never outside of a string.
struct Escaped<'o>(&'o mut dyn Write);

impl Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (index, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if index > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_end_its_element() {
        let mut out = Vec::new();
        Escaped(&mut out).write_all(br#"{"a":"</script><!--<"}"#).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(!text.contains('<'));
        let value: serde_json::Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(value["a"], "</script><!--<");
    }
}
