//! Where the fields of a piece of text end.
//!
//! A piece starts at the start of a row. Separators within quotes do not count. A quote must open
//! at the start of a field, and close before a separator; one that stands elsewhere is a fault
//! rather than a character, since it may as well have swallowed the rows up to the next one.

use crate::text::{Block, WIDTH, running_parity};

/// What separates and encloses fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Between two fields of a row.
    pub(crate) delimiter: u8,
    /// Around a field that has separators or quotes in it; `None` where quotes are characters.
    pub(crate) quote: Option<u8>,
}

/// What is wrong with how a text is cut into rows and fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A quote within a field without quotes, or text after a closing quote.
    StrayQuote { at: usize },
    /// A quote that is never closed; `at` is where its field starts.
    OpenQuote { at: usize },
    /// A row with more or fewer fields than there are columns, and where it starts.
    Ragged { at: usize, found: usize },
}

impl Fault {
    pub(super) fn at(self) -> usize {
        match self {
            Self::StrayQuote { at } | Self::OpenQuote { at } | Self::Ragged { at, .. } => at,
        }
    }
}

/// Walks over a text and notes where fields end.
pub(super) struct Index<'t> {
    text: &'t [u8],
    dialect: Dialect,
    columns: usize,
    at: usize,
    /// All ones where the byte before `at` is within quotes, else zero.
    inside: u64,
    /// 1 if the byte before `at` is a separator or a quote: a quote may open here.
    may_open: u64,
    /// 1 if the byte before `at` closes a quote: a separator must follow, or another quote.
    closed: u64,
    /// Before the first row, then the end of every field. The start of a field is one more than the
    /// entry before its own; the first entry of all is one less than zero.
    ends: Vec<u32>,
    /// Rows at the front of `ends`.
    rows: usize,
    quoted: bool,
    stray: Option<usize>,
}

impl<'t> Index<'t> {
    /// `ends` is memory to use.
    pub(super) fn new(
        text: &'t [u8],
        dialect: Dialect,
        columns: usize,
        mut ends: Vec<u32>,
    ) -> Self {
        ends.clear();
        ends.push(u32::MAX);
        Self {
            text,
            dialect,
            columns,
            at: 0,
            inside: 0,
            may_open: 1,
            closed: 0,
            ends,
            rows: 0,
            quoted: false,
            stray: None,
        }
    }

    /// Drops the rows of last time and finds about as many as are wanted; none are left if it finds
    /// none. The fault, if there is one, stands behind these rows.
    pub(super) fn advance(&mut self, wanted: usize) -> Option<Fault> {
        self.ends.drain(..self.rows * self.columns);
        self.rows = 0;
        self.quoted = self.inside != 0;
        let mut wanted = wanted * self.columns;
        while self.at < self.text.len() && self.stray.is_none() {
            self.note_separators(wanted);
            // A row may have more fields than are wanted of all of them.
            wanted += self.ends.len();
            if self.count_rows() {
                break;
            }
            if let Some(fault) = self.straighten() {
                return Some(fault);
            }
            if self.rows > 0 {
                break;
            }
        }
        if let Some(at) = self.stray {
            return Some(Fault::StrayQuote { at });
        }
        if self.at >= self.text.len() && self.inside != 0 {
            let last = self.ends.last().copied().unwrap_or(u32::MAX);
            let start = last.wrapping_add(1) as usize;
            let at = skip_empty_lines(self.text, start, self.columns);
            return Some(Fault::OpenQuote { at });
        }
        None
    }

    /// How many rows there are now.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether there may be a quote in these rows.
    pub(super) fn has_quotes(&self) -> bool {
        self.quoted
    }

    /// The entry before each row's first field, and the ends of its fields; see [`Self::field`].
    pub(super) fn ends(&self) -> &[u32] {
        &self.ends[..=self.rows * self.columns]
    }

    /// From where to where a field goes.
    pub(super) fn field(&self, row: usize, column: usize) -> (usize, usize) {
        let place = row * self.columns + column;
        (self.ends[place].wrapping_add(1) as usize, self.ends[place + 1] as usize)
    }

    /// Notes separators until there are as many as wanted, or the text is over.
    fn note_separators(&mut self, wanted: usize) {
        let Dialect { delimiter, quote } = self.dialect;
        // Without quotes so far, nothing but separators need be looked for.
        let quote_byte = quote.unwrap_or(0);
        while self.at < self.text.len() && self.ends.len() <= wanted {
            let block = Block::at(self.text, self.at);
            let mut separators = block.equal_to(delimiter) | block.equal_to(b'\n');
            let quotes = if quote.is_some() { block.equal_to(quote_byte) } else { 0 };
            if quotes | self.inside | self.closed != 0 {
                self.quoted = true;
                let within = running_parity(quotes) ^ self.inside;
                separators &= !within;
                let may_open = (separators | quotes) << 1 | self.may_open;
                let closes = quotes & !within;
                let closed = closes << 1 | self.closed;
                let ending = block.equal_to(b'\r') & self.before_newlines(&block);
                let bad =
                    (quotes & within & !may_open) | (closed & !(separators | quotes | ending));
                if bad != 0 {
                    let place = bad.trailing_zeros() as usize;
                    separators &= (1 << place) - 1;
                    // Past the end there is padding, which is no text after a quote.
                    if self.at + place < self.text.len() {
                        self.stray = Some(self.at + place);
                    }
                }
                self.inside = ((within >> 63) as i64).wrapping_neg() as u64;
                self.closed = closes >> 63;
                self.may_open = (separators | quotes) >> 63;
            } else {
                self.may_open = separators >> 63;
            }
            let base = self.at as u32;
            while separators != 0 {
                self.ends.push(base + separators.trailing_zeros());
                separators &= separators - 1;
            }
            if self.stray.is_some() {
                return;
            }
            self.at += WIDTH;
        }
    }

    /// Bits of the bytes that stand right before a newline.
    fn before_newlines(&self, block: &Block) -> u64 {
        let next = self.text.get(self.at + WIDTH) == Some(&b'\n');
        block.equal_to(b'\n') >> 1 | u64::from(next) << 63
    }

    /// Takes the entries as rows if every row has as many fields as there are columns.
    fn count_rows(&mut self) -> bool {
        let fields = &self.ends[1..];
        let rows = fields.chunks_exact(self.columns);
        let newline = |end: &u32| self.text[*end as usize] == b'\n';
        let regular = rows.clone().all(|row| {
            let (last, others) = row.split_last().unwrap_or((&0, &[]));
            newline(last) && !others.iter().any(newline)
        });
        if !regular || rows.remainder().iter().any(newline) {
            return false;
        }
        self.rows = fields.len() / self.columns;
        self.rows > 0
    }

    /// Drops empty lines, and stops before a row with too many or too few fields.
    fn straighten(&mut self) -> Option<Fault> {
        let mut kept = vec![self.ends[0]];
        let mut row = kept.len();
        let mut start = self.ends[0].wrapping_add(1);
        for end in &self.ends[1..] {
            kept.push(*end);
            if self.text[*end as usize] != b'\n' {
                continue;
            }
            let at = skip_empty_lines(self.text, start as usize, self.columns);
            let found = kept.len() - row;
            if at > *end as usize {
                kept.pop();
            } else if found != self.columns {
                kept.truncate(row);
                self.rows = (row - 1) / self.columns;
                self.ends = kept;
                return Some(Fault::Ragged { at, found });
            } else {
                row = kept.len();
            }
            start = end + 1;
        }
        self.rows = (row - 1) / self.columns;
        self.ends = kept;
        None
    }

    /// Gives the memory back, for another index.
    pub(super) fn into_memory(self) -> Vec<u32> {
        self.ends
    }
}

/// Where a row starts that has empty lines before it. In a table of one column an empty line is a
/// row.
#[inline(always)]
pub(super) fn skip_empty_lines(text: &[u8], mut at: usize, columns: usize) -> usize {
    loop {
        match text.get(at) {
            Some(b'\n') if columns > 1 => at += 1,
            Some(b'\r') if columns > 1 && text.get(at + 1) == Some(&b'\n') => at += 2,
            _ => return at,
        }
    }
}
