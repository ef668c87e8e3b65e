//! The strings behind the codes of a text column.

use std::{
    fmt,
    hash::BuildHasher,
    sync::{Arc, OnceLock},
};

use arrow_array::{Array, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::{RelationalError, RelationalResult};

/// Distinct strings, each with a code: the order in which they were first seen. On the host only;
/// the device works on codes, and on what tables over codes say.
///
/// ```
/// use xlog_relational::DictionaryBuilder;
///
/// let mut builder = DictionaryBuilder::new();
/// let codes: Vec<u32> =
///     ["pear", "apple", "pear"].iter().map(|s| builder.code_of(s)).collect::<Result<_, _>>()?;
/// let dictionary = builder.finish();
/// assert_eq!(codes, [0, 1, 0]);
/// assert_eq!(dictionary.get(1), Some("apple"));
/// assert_eq!(dictionary.ranks(), [1, 0]); // "apple" sorts first
/// # Ok::<(), xlog_relational::RelationalError>(())
/// ```
#[derive(Debug)]
pub struct Dictionary {
    /// In order of their codes; none is null. Shared with Arrow both ways.
    strings: StringArray,
    index: Index,
    ranks: OnceLock<Vec<u32>>,
}

impl Dictionary {
    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// The string of a code.
    #[must_use]
    pub fn get(&self, code: u32) -> Option<&str> {
        let code = code as usize;
        (code < self.strings.len()).then(|| self.strings.value(code))
    }

    /// The code of a string.
    #[must_use]
    pub fn code_of(&self, string: &str) -> Option<u32> {
        self.index.find(string, |code| self.strings.value(code as usize).as_bytes())
    }

    /// For each code, how many of the strings are smaller, by their bytes: codes compare as these
    /// ranks do. Worked out when it is first asked for, and kept.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        self.ranks.get_or_init(|| {
            let mut codes: Vec<u32> = (0..self.len() as u32).collect();
            codes.sort_unstable_by_key(|code| self.strings.value(*code as usize).as_bytes());
            let mut ranks = vec![0; codes.len()];
            for (rank, code) in codes.into_iter().enumerate() {
                ranks[code as usize] = rank as u32;
            }
            ranks
        })
    }

    /// How many of the strings are smaller than `string`, and whether it is one of them: where a
    /// literal stands among the ranks.
    #[must_use]
    pub fn position_of(&self, string: &str) -> (u32, bool) {
        if let Some(code) = self.code_of(string) {
            return (self.ranks()[code as usize], true);
        }
        let strings = self.strings.iter().flatten();
        (strings.filter(|other| other.as_bytes() < string.as_bytes()).count() as u32, false)
    }

    /// The strings as Arrow has them.
    #[must_use]
    pub fn strings(&self) -> &StringArray {
        &self.strings
    }

    /// The dictionary of an Arrow array, shared with it, if its strings are distinct and all there.
    pub(crate) fn of_distinct(strings: &StringArray) -> Option<Self> {
        if strings.null_count() > 0 || u32::try_from(strings.len()).is_err() {
            return None;
        }
        let mut index = Index::default();
        for code in 0..strings.len() {
            let string_of = |code| strings.value(code as usize).as_bytes();
            if index.find(strings.value(code), string_of).is_some() {
                return None;
            }
            index.insert(code as u32, string_of);
        }
        Some(Self { strings: strings.clone(), index, ranks: OnceLock::new() })
    }

    /// One dictionary for the codes of two. The left one's codes stay what they are; those of the
    /// right one become what [`Unified::right_codes`] says.
    pub fn unify(left: &Arc<Self>, right: &Arc<Self>) -> RelationalResult<Unified> {
        if Arc::ptr_eq(left, right) {
            return Ok(Unified { dictionary: Arc::clone(left), right_codes: None });
        }
        let known: Vec<Option<u32>> =
            right.strings.iter().map(|string| left.code_of(string.unwrap_or(""))).collect();
        if let Some(codes) = known.iter().copied().collect::<Option<Vec<u32>>>() {
            // Nothing new: the left one serves both as it is.
            let same = codes.iter().zip(0..).all(|(code, place)| *code == place);
            let right_codes = (!same).then_some(codes);
            return Ok(Unified { dictionary: Arc::clone(left), right_codes });
        }
        let mut builder = DictionaryBuilder::continuing(left);
        let mut codes = Vec::with_capacity(known.len());
        for (string, known) in right.strings.iter().flatten().zip(known) {
            codes.push(known.map_or_else(|| builder.code_of(string), Ok)?);
        }
        let same = codes.iter().zip(0..).all(|(code, place)| *code == place);
        let right_codes = (!same).then_some(codes);
        Ok(Unified { dictionary: Arc::new(builder.finish()), right_codes })
    }
}

/// Two dictionaries made one.
#[derive(Debug)]
pub struct Unified {
    /// The strings of both. A code of the left one means here what it meant there.
    pub dictionary: Arc<Dictionary>,
    /// For each code of the right one, the code here; `None` where they are the same.
    pub right_codes: Option<Vec<u32>>,
}

/// Gives codes to strings, the next one to each that it has not seen.
#[derive(Default)]
pub struct DictionaryBuilder {
    bytes: Vec<u8>,
    /// Where each string ends; it starts where the one before it ends.
    ends: Vec<i32>,
    index: Index,
}

impl DictionaryBuilder {
    /// The most bytes of text: Arrow's strings count them with 31 bits.
    pub const MOST_BYTES: usize = i32::MAX as usize;

    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that has seen the strings of a dictionary.
    fn continuing(dictionary: &Dictionary) -> Self {
        let strings = &dictionary.strings;
        let first = strings.value_offsets()[0];
        let ends = strings.value_offsets()[1..].iter().map(|end| end - first).collect::<Vec<_>>();
        let last = first + ends.last().copied().unwrap_or(0);
        let bytes = strings.value_data()[first as usize..last as usize].to_vec();
        Self { bytes, ends, index: dictionary.index.clone() }
    }

    /// The code of a string. One text too many, or one byte too many, is an error.
    pub fn code_of(&mut self, string: &str) -> RelationalResult<u32> {
        let (bytes, ends) = (&self.bytes, &self.ends);
        if let Some(code) = self.index.find(string, |code| text_of(bytes, ends, code)) {
            return Ok(code);
        }
        let too_many = |what: &str, found: usize, most: usize| RelationalError::TooMany {
            what: what.to_owned(),
            found: found as u64,
            most: most as u64,
        };
        let end = self.bytes.len() + string.len();
        let end_offset = i32::try_from(end)
            .map_err(|_| too_many("bytes of distinct text", end, Self::MOST_BYTES))?;
        let code = u32::try_from(self.ends.len())
            .map_err(|_| too_many("distinct strings", self.ends.len(), u32::MAX as usize))?;
        self.bytes.extend_from_slice(string.as_bytes());
        self.ends.push(end_offset);
        let (bytes, ends) = (&self.bytes, &self.ends);
        self.index.insert(code, |code| text_of(bytes, ends, code));
        Ok(code)
    }

    /// The dictionary of all strings that were seen.
    #[must_use]
    pub fn finish(self) -> Dictionary {
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        offsets.extend(self.ends);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let strings = StringArray::new(offsets, Buffer::from_vec(self.bytes), None);
        Dictionary { strings, index: self.index, ranks: OnceLock::new() }
    }
}

impl fmt::Debug for DictionaryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DictionaryBuilder").field("strings", &self.ends.len()).finish()
    }
}

/// The bytes of one string of a builder.
fn text_of<'b>(bytes: &'b [u8], ends: &[i32], code: u32) -> &'b [u8] {
    let code = code as usize;
    let start = if code == 0 { 0 } else { ends[code - 1] as usize };
    &bytes[start..ends[code] as usize]
}

/// From strings to codes; the strings stand elsewhere, once.
#[derive(Clone, Default)]
struct Index {
    codes: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Index {
    fn find<'s>(&self, string: &str, string_of: impl Fn(u32) -> &'s [u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(string.as_bytes());
        self.codes.find(hash, |code| string_of(*code) == string.as_bytes()).copied()
    }

    /// Adds a code whose string is not there yet.
    fn insert<'s>(&mut self, code: u32, string_of: impl Fn(u32) -> &'s [u8]) {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(string_of(code));
        self.codes.insert_unique(hash, code, |code| hasher.hash_one(string_of(*code)));
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("codes", &self.codes.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dictionary(strings: &[String]) -> (Arc<Dictionary>, Vec<u32>) {
        let mut builder = DictionaryBuilder::new();
        let codes = strings.iter().map(|string| builder.code_of(string).unwrap()).collect();
        (Arc::new(builder.finish()), codes)
    }

    fn strings() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-cä]{0,3}", 0..40)
    }

    proptest! {
        #[test]
        fn codes_give_the_strings_back_in_the_order_they_were_first_seen(strings in strings()) {
            let (dictionary, codes) = dictionary(&strings);
            let mut next = 0;
            for (string, code) in strings.iter().zip(codes) {
                prop_assert_eq!(dictionary.get(code), Some(string.as_str()));
                prop_assert_eq!(dictionary.code_of(string), Some(code));
                prop_assert!(code <= next);
                next = next.max(code + 1);
            }
            prop_assert_eq!(dictionary.len(), next as usize);
            prop_assert_eq!(dictionary.get(next), None);
        }

        #[test]
        fn ranks_order_codes_as_their_strings(strings in strings(), probe in "[a-cä]{0,3}") {
            let (dictionary, codes) = dictionary(&strings);
            let ranks = dictionary.ranks();
            for (a, left) in codes.iter().zip(&strings) {
                for (b, right) in codes.iter().zip(&strings) {
                    let order = ranks[*a as usize].cmp(&ranks[*b as usize]);
                    prop_assert_eq!(order, left.as_bytes().cmp(right.as_bytes()));
                }
            }
            let (position, found) = dictionary.position_of(&probe);
            prop_assert_eq!(found, strings.contains(&probe));
            for (code, string) in codes.iter().zip(&strings) {
                prop_assert_eq!(string < &probe, ranks[*code as usize] < position);
            }
        }

        #[test]
        fn unified_codes_mean_the_same_strings(left in strings(), right in strings()) {
            let ((a, left_codes), (b, right_codes)) = (dictionary(&left), dictionary(&right));
            let unified = Dictionary::unify(&a, &b).unwrap();
            for (string, code) in left.iter().zip(left_codes) {
                prop_assert_eq!(unified.dictionary.get(code), Some(string.as_str()));
            }
            for (string, code) in right.iter().zip(right_codes) {
                let code = unified.right_codes.as_ref().map_or(code, |map| map[code as usize]);
                prop_assert_eq!(unified.dictionary.get(code), Some(string.as_str()));
                prop_assert_eq!(unified.dictionary.code_of(string), Some(code));
            }
            let all: std::collections::BTreeSet<_> = left.iter().chain(&right).collect();
            prop_assert_eq!(unified.dictionary.len(), all.len());
        }
    }

    #[test]
    fn a_dictionary_that_knows_all_is_shared_rather_than_copied() {
        let (all, _) = dictionary(&["b".into(), "a".into(), "c".into()]);
        let (some, _) = dictionary(&["c".into(), "b".into()]);
        let unified = Dictionary::unify(&all, &some).unwrap();
        assert!(Arc::ptr_eq(&unified.dictionary, &all));
        assert_eq!(unified.right_codes, Some(vec![2, 0]));
        assert!(Dictionary::unify(&all, &all).unwrap().right_codes.is_none());
    }

    #[test]
    fn a_slice_of_arrow_strings_can_be_continued() {
        let strings = StringArray::from(vec!["x", "left", "right", "y"]).slice(1, 2);
        let sliced = Arc::new(Dictionary::of_distinct(&strings).unwrap());
        let (other, _) = dictionary(&["new".into(), "right".into()]);
        let unified = Dictionary::unify(&sliced, &other).unwrap();
        let all: Vec<_> = (0..3).map(|code| unified.dictionary.get(code).unwrap()).collect();
        assert_eq!((all, unified.right_codes), (vec!["left", "right", "new"], Some(vec![2, 1])));
        let twice = StringArray::from(vec!["x", "x"]);
        assert!(Dictionary::of_distinct(&twice).is_none());
    }
}
