//! A text in words.

use std::fmt;

use super::ParseError;

/// A word of a text, and the byte at which it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: usize,
}

/// What a word is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// A name or a keyword as it was written.
    Word(String),
    /// A name in quotes: never a keyword.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    /// A whole number, as large as any that a column holds.
    Whole(u64),
    /// A number with a point or an exponent.
    Real(f64),
    /// An operator or a mark, in its one spelling.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

impl TokenKind {
    pub(super) fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(own) if *own == symbol)
    }

    /// Whether it is the keyword, in whatever case.
    pub(super) fn is_word(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) | Self::Quoted(word) => write!(f, "{word:?}"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number:?}"),
            Self::Symbol(symbol) => write!(f, "{symbol:?}"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// Two spellings of a symbol come out as one; the longer ones stand first.
const SYMBOLS: [(&str, &str); 18] = [
    ("<=", "<="),
    (">=", ">="),
    ("<>", "<>"),
    ("!=", "<>"),
    ("==", "="),
    ("=", "="),
    ("<", "<"),
    (">", ">"),
    ("+", "+"),
    ("-", "-"),
    ("*", "*"),
    ("/", "/"),
    ("%", "%"),
    ("(", "("),
    (")", ")"),
    (",", ","),
    (":", ":"),
    (";", ";"),
];

/// The words of a text, the end last.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { kind: TokenKind::End, at });
            return Ok(tokens);
        };
        let (kind, length) = match first {
            '\'' => {
                let (string, length) = quoted(text, at, '\'', "text")?;
                (TokenKind::Text(string), length)
            }
            '"' | '`' => {
                let (name, length) = quoted(text, at, first, "name")?;
                if name.is_empty() {
                    return Err(ParseError::new("a name cannot be empty", text, at));
                }
                (TokenKind::Quoted(name), length)
            }
            '0'..='9' | '.' => number(text, at)?,
            letter if letter.is_alphabetic() || letter == '_' => {
                let inside = |letter: char| letter.is_alphanumeric() || "_.".contains(letter);
                let length = rest.find(|letter| !inside(letter)).unwrap_or(rest.len());
                (TokenKind::Word(rest[..length].to_owned()), length)
            }
            other => match SYMBOLS.iter().find(|(spelling, _)| rest.starts_with(spelling)) {
                Some((spelling, symbol)) => (TokenKind::Symbol(symbol), spelling.len()),
                None => {
                    let hint = match other {
                        '&' => "; write \"and\"",
                        '|' => "; write \"or\"",
                        '!' => "; write \"not\", or \"<>\" for different",
                        _ => "; put names with special characters in \"double quotes\"",
                    };
                    let message = format!("{other:?} means nothing here{hint}");
                    return Err(ParseError::new(message, text, at));
                }
            },
        };
        tokens.push(Token { kind, at });
        at += length;
    }
}

/// What stands between quotes, a doubled one being one, and how many bytes it all takes.
fn quoted(text: &str, at: usize, quote: char, what: &str) -> Result<(String, usize), ParseError> {
    let mut content = String::new();
    let mut letters = text[at + 1..].char_indices().peekable();
    while let Some((index, letter)) = letters.next() {
        if letter != quote {
            content.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            content.push(quote);
        } else {
            return Ok((content, index + 2));
        }
    }
    let message = format!("the {what} that begins here has no closing {quote}");
    Err(ParseError::new(message, text, at))
}

fn number(text: &str, at: usize) -> Result<(TokenKind, usize), ParseError> {
    let rest = &text.as_bytes()[at..];
    let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut length = digits(0);
    let mut real = false;
    if rest.get(length) == Some(&b'.') {
        real = true;
        length += 1 + digits(length + 1);
    }
    if matches!(rest.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            real = true;
            length += 1 + sign + exponent;
        }
    }
    let word = &text[at..at + length];
    let glued = text[at + length..].chars().next();
    if glued.is_some_and(|letter| letter.is_alphanumeric() || "_.".contains(letter)) {
        let message = "a number runs into what follows it; put names that begin with a digit in \
                       \"double quotes\"";
        return Err(ParseError::new(message, text, at));
    }
    let kind = match real {
        true => word.parse().ok().filter(|value: &f64| value.is_finite()).map(TokenKind::Real),
        false => word.parse().ok().map(TokenKind::Whole),
    };
    let message = match word {
        "." => "a point alone is no number",
        _ => "this number is too large; write it with an exponent, as 1e20",
    };
    kind.map(|kind| (kind, length)).ok_or_else(|| ParseError::new(message, text, at))
}
