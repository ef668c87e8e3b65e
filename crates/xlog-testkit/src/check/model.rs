//! What the blocks of a program hold if its operations run one after the other.

use xlog_cuda::kernels;

use super::program::Work;

/// The number of a block: every allocation is another one, whichever variable holds it.
pub(super) type Cell = usize;

/// The contents of every block there ever was: a launch that was prepared before a free may still
/// come after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    words: Vec<Vec<u32>>,
    /// Numbers that can be given again.
    spare: Vec<Cell>,
}

impl Contents {
    /// Another block.
    pub(super) fn add(&mut self, words: usize) -> Cell {
        let cell = self.spare.pop().unwrap_or(self.words.len());
        if cell == self.words.len() {
            self.words.push(Vec::new());
        }
        self.words[cell] = vec![0; words];
        cell
    }

    pub(super) fn get(&self, cell: Cell) -> &[u32] {
        &self.words[cell]
    }

    pub(super) fn set(&mut self, cell: Cell, values: Vec<u32>) {
        self.words[cell] = values;
    }

    /// The words a launch of `work` is over: those that all its blocks have.
    pub(super) fn words(&self, work: Work) -> usize {
        work.uses().into_iter().map(|(cell, _)| self.length(cell)).min().unwrap_or(0)
    }

    pub(super) fn length(&self, cell: Cell) -> usize {
        self.words[cell].len()
    }

    /// Does what a launch over these blocks does.
    pub(super) fn apply(&mut self, work: Work, salt: u32) {
        let n = self.words(work);
        match work {
            Work::Fill { out } => self.change(out, n, |_, word| *word = salt),
            Work::Copy { from, to } => self.copy(from, to, n),
            Work::Increment { data } => {
                self.change(data, n, |_, word| *word = word.wrapping_add(salt));
            }
            Work::Mix { input, data } => {
                let input = self.words[input][..n].to_vec();
                self.mix(&input, data, salt);
            }
            Work::Blend { a, b, data, out } => {
                let (a, b) = (self.copy_of(a), self.copy_of(b));
                let blend = |i: usize, word| kernels::blend_u32(a[i], b[i], word, salt);
                self.change(data, n, |i, word| *word = blend(i, *word).0);
                self.change(out, n, |i, word| *word = blend(i, 0).1);
            }
            Work::Read { .. } => {}
        }
    }

    /// Does what mixing `input` into a block does.
    pub(super) fn mix(&mut self, input: &[u32], data: Cell, salt: u32) {
        let n = input.len();
        self.change(data, n, |i, word| *word = kernels::mix_u32(*word, input[i], salt));
    }

    /// Forgets what every other block held.
    pub(super) fn keep(&mut self, live: &[Cell]) {
        self.spare = (0..self.words.len()).filter(|cell| !live.contains(cell)).collect();
    }

    /// Copies the first `n` words of a block to another.
    pub(super) fn copy(&mut self, from: Cell, to: Cell, n: usize) {
        let source = self.copy_of(from);
        self.change(to, n, |i, word| *word = source[i]);
    }

    fn copy_of(&self, cell: Cell) -> Vec<u32> {
        self.words[cell].clone()
    }

    fn change(&mut self, cell: Cell, n: usize, mut f: impl FnMut(usize, &mut u32)) {
        self.words[cell].iter_mut().take(n).enumerate().for_each(|(index, word)| f(index, word));
    }
}

/// Where two results differ first.
pub(super) fn first_difference(found: &[u32], expected: &[u32]) -> String {
    if found.len() != expected.len() {
        return format!("{} words instead of {}", found.len(), expected.len());
    }
    let differs = |(_, (found, expected)): &(usize, (&u32, &u32))| found != expected;
    match found.iter().zip(expected).enumerate().find(differs) {
        Some((index, (found, expected))) => {
            format!("word {index} is {found:#010x}, and should be {expected:#010x}")
        }
        None => "they are alike".into(),
    }
}
