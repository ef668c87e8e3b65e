//! Good inputs changed, cut and joined.

use crate::check::Draw;

/// Numbers at which readers go wrong.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "00",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "0x",
    "0xffffffffffffffff",
    "0x10000000000000000",
    "1e400",
];

/// Texts at which readers go wrong: ends of lines, quotes, marks, what is not text.
const ODDITIES: [&[u8]; 22] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\n\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\0",
    b"\"",
    b"\"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\xe2\x80\xa8",
    b"\xc2\xa0",
    b" ",
    b"\t",
    b",",
    b"{}",
];

/// The longest input that is made.
const LONGEST: usize = 64 << 10;

/// Changes good inputs.
#[derive(Clone, Debug)]
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Mutator {
    /// Starts from these inputs.
    #[must_use]
    pub fn new(corpus: &[&str]) -> Self {
        let corpus = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
        let numbers = NUMBERS.iter().map(|number| number.as_bytes().to_vec());
        let words = numbers.chain(ODDITIES.iter().map(|text| text.to_vec())).collect();
        Self { corpus, words }
    }

    /// Words that are put in besides.
    pub fn add_words(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    }

    /// The input of a case: first the good ones as they are, then each with some changes.
    #[must_use]
    pub fn case(&self, number: u64, draw: &mut Draw) -> Vec<u8> {
        let whole = usize::try_from(number).ok().and_then(|number| self.corpus.get(number));
        if let Some(whole) = whole {
            return whole.clone();
        }
        let mut input = self.one_of(draw, &self.corpus);
        for _ in 0..=draw.below(6) {
            self.change(&mut input, draw);
            input.truncate(LONGEST);
        }
        input
    }

    fn one_of(&self, draw: &mut Draw, texts: &[Vec<u8>]) -> Vec<u8> {
        texts.get(draw.below(texts.len())).cloned().unwrap_or_default()
    }

    fn change(&self, input: &mut Vec<u8>, draw: &mut Draw) {
        let at = draw.below(input.len() + 1);
        match draw.below(14) {
            0 => input.truncate(at),
            1 if at < input.len() => input[at] ^= 1 << draw.below(8),
            2 if at < input.len() => input[at] = draw.number() as u8,
            3 if at < input.len() => drop(input.remove(at)),
            4 => insert(input, at, &self.one_of(draw, &self.words)),
            5 => replace(input, part(input, at, b"\n"), &self.one_of(draw, &self.words)),
            // A field, by any of the marks that end one.
            6..9 => {
                let field = part(input, at, b",:\n\"{}");
                replace(input, field, &self.one_of(draw, &self.words));
            }
            9 => {
                let line = part(input, at, b"\n");
                let text = input[line.clone()].to_vec();
                for _ in 0..=draw.below(3) {
                    insert(input, line.end, &[b"\n", text.as_slice()].concat());
                }
            }
            10 => {
                let (one, other) = (part(input, at, b"\n"), draw.below(input.len() + 1));
                let text = input[one.clone()].to_vec();
                let others = input[part(input, other, b"\n")].to_vec();
                replace(input, one, &others);
                let other = part(input, other.min(input.len()), b"\n");
                replace(input, other, &text);
            }
            // The end of another good input.
            11 => {
                let other = self.one_of(draw, &self.corpus);
                input.truncate(at);
                input.extend_from_slice(&other[draw.below(other.len() + 1)..]);
            }
            // Deep, or long.
            12 => {
                let (word, times) = (self.one_of(draw, &self.words), 1 << draw.below(13));
                insert(input, at, &word.repeat(times));
            }
            13 => {
                let (open, close) = draw.one_of(&[(b'[', b']'), (b'{', b'}'), (b'(', b')')]);
                let times = 1 << draw.below(12);
                let field = part(input, at, b",:\n");
                insert(input, field.end, &vec![close; times]);
                insert(input, field.start, &vec![open; times]);
            }
            _ => {}
        }
    }
}

/// The part around a place that ends at one of `marks` on both sides.
fn part(input: &[u8], at: usize, marks: &[u8]) -> std::ops::Range<usize> {
    let is_mark = |byte: &u8| marks.contains(byte);
    let start = input[..at].iter().rposition(is_mark).map_or(0, |mark| mark + 1);
    let end = input[at..].iter().position(is_mark).map_or(input.len(), |mark| at + mark);
    start..end
}

fn insert(input: &mut Vec<u8>, at: usize, text: &[u8]) {
    input.splice(at..at, text.iter().copied());
}

fn replace(input: &mut Vec<u8>, range: std::ops::Range<usize>, text: &[u8]) {
    input.splice(range, text.iter().copied());
}
