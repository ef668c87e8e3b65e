//! Words, read one after the other.

use super::{
    ParseError,
    lexer::{Token, TokenKind, tokens},
};

/// How deep parentheses, signs and negations may stand in each other. What is deeper could not be
/// evaluated either, and would overflow the stack.
const DEEPEST: usize = 64;

/// A place in the words of a text.
pub(super) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self, ParseError> {
        Ok(Self { text, tokens: tokens(text)?, next: 0, depth: 0 })
    }

    /// The next word. The end stays the next word for ever.
    pub(super) fn peek(&self) -> &TokenKind {
        &self.tokens[self.next].kind
    }

    /// The word after the next one.
    pub(super) fn peek_second(&self) -> &TokenKind {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].kind
    }

    /// Where the next word begins.
    pub(super) fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    /// The text from `start` up to the next word, without the space before that.
    pub(super) fn written_since(&self, start: usize) -> &'t str {
        self.text[start..self.at()].trim_end()
    }

    pub(super) fn advance(&mut self) -> TokenKind {
        let kind = self.tokens[self.next].kind.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        kind
    }

    /// Takes the next word if it is this symbol.
    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let found = self.peek().is(symbol);
        if found {
            self.advance();
        }
        found
    }

    /// Takes the next word if it is this keyword.
    pub(super) fn take_word(&mut self, keyword: &str) -> bool {
        let found = self.peek().is_word(keyword);
        if found {
            self.advance();
        }
        found
    }

    /// Demands this symbol.
    pub(super) fn expect(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.take(symbol) { Ok(()) } else { Err(self.expected(&format!("{symbol:?}"))) }
    }

    /// Demands this keyword.
    pub(super) fn expect_word(&mut self, keyword: &str) -> Result<(), ParseError> {
        if self.take_word(keyword) { Ok(()) } else { Err(self.expected(&format!("{keyword:?}"))) }
    }

    /// Demands the end.
    pub(super) fn end(&self, or: &str) -> Result<(), ParseError> {
        match self.peek() {
            TokenKind::End => Ok(()),
            _ => Err(self.expected(or)),
        }
    }

    /// The error that something else should stand here.
    pub(super) fn expected(&self, what: &str) -> ParseError {
        let before = match self.next.checked_sub(1).map(|before| &self.tokens[before].kind) {
            Some(before) => format!(" after {before}"),
            None => String::new(),
        };
        self.error(format!("expected {what}{before}, found {}", self.peek()))
    }

    /// An error at the next word.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(message, self.at())
    }

    /// An error at a byte of the text.
    pub(super) fn error_at(&self, message: impl Into<String>, at: usize) -> ParseError {
        ParseError::new(message, self.text, at)
    }

    /// Reads a part of a part; too many in each other are refused.
    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == DEEPEST {
            let message = format!("more than {DEEPEST} parts stand in each other; split it");
            return Err(self.error(message));
        }
        self.depth += 1;
        let part = read(self);
        self.depth -= 1;
        part
    }

    /// A name: a word that is no keyword, or one in quotes.
    pub(super) fn name(&mut self, what: &str) -> Result<String, ParseError> {
        match self.peek() {
            TokenKind::Quoted(_) => {}
            TokenKind::Word(word) if !xlog_relational::Expr::is_reserved(word) => {}
            TokenKind::Word(word) => {
                let message = format!("{word:?} is a keyword; as a name it stands in quotes");
                return Err(self.error(format!("{message}: \"{word}\"")));
            }
            _ => return Err(self.expected(what)),
        }
        match self.advance() {
            TokenKind::Word(name) | TokenKind::Quoted(name) => Ok(name),
            _ => Err(self.expected(what)),
        }
    }

    /// One or more, with commas between them.
    pub(super) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut all = vec![one(self)?];
        while self.take(",") {
            all.push(one(self)?);
        }
        Ok(all)
    }
}
