//! Loops of host kernels that a compiler does not vectorise by itself.
//!
//! Each has one plain form, and one for processors with AVX-512, chosen when it is called. Both do
//! the same.

use bytemuck::Pod;

/// Moves the values whose bit is set to the front of `kept`, in their order, and answers how many
/// there are: bit `i % 32` of word `i / 32`. There are 32 values for each word, and `kept` has room
/// for one word more than that, whose contents are spoilt.
///
/// ```
/// use xlog_driver::host::compress;
///
/// let values: Vec<u32> = (0..32).collect();
/// let mut kept = [0; 64];
/// assert_eq!(compress(&[0b1001], &values, &mut kept), 2);
/// assert_eq!(kept[..2], [0, 3]);
/// ```
///
/// # Panics
/// If `values` or `kept` is too short.
pub fn compress<V: Pod>(words: &[u32], values: &[V], kept: &mut [V]) -> usize {
    assert!(
        values.len() >= 32 * words.len() && kept.len() >= 32 * words.len() + 32,
        "{} words of bits need as many times 32 values, and room for 32 more",
        words.len()
    );
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("popcnt") {
        if size_of::<V>() == 4
            && let (Ok(values), Ok(kept)) =
                (bytemuck::try_cast_slice(values), bytemuck::try_cast_slice_mut(kept))
        {
            // SAFETY: the processor has what the function is compiled for, as was just asked.
            return unsafe { wide::compress_words(words, values, kept) };
        }
        if size_of::<V>() == 8
            && let (Ok(values), Ok(kept)) =
                (bytemuck::try_cast_slice(values), bytemuck::try_cast_slice_mut(kept))
        {
            // SAFETY: as above.
            return unsafe { wide::compress_longs(words, values, kept) };
        }
    }
    compress_plainly(words, values, kept)
}

fn compress_plainly<V: Copy>(words: &[u32], values: &[V], kept: &mut [V]) -> usize {
    let mut held = 0;
    for (word, values) in words.iter().zip(values.as_chunks::<32>().0) {
        let Some(room) = kept[held..].first_chunk_mut::<32>() else { break };
        match *word {
            0 => {}
            u32::MAX => *room = *values,
            word => {
                // Written every time and kept now and then: a branch would be guessed wrong.
                let mut place = 0;
                for (bit, value) in values.iter().enumerate() {
                    room[place & 31] = *value;
                    place += (word >> bit & 1) as usize;
                }
            }
        }
        held += word.count_ones() as usize;
    }
    held
}

/// A range of bits, after a change that orders them: see [`mark`].
#[derive(Clone, Copy, Debug)]
pub struct BitRange<B> {
    /// What a set highest bit inverts.
    pub magnitude: B,
    /// What is always inverted.
    pub flip: B,
    /// The least that is in the range.
    pub least: B,
    /// How many come behind it.
    pub span: B,
    /// Whether those outside of it are meant.
    pub outside: bool,
}

/// Bits of values that can be marked: `u32` and `u64`.
pub trait Markable: Pod {
    #[doc(hidden)]
    fn mark(values: &[Self], range: &BitRange<Self>, words: &mut [u32]);
}

/// Sets bit `i % 32` of word `i / 32` if value `i` lies in the range, and clears it if not; bits
/// behind the last value are cleared. There is a word for every 32 values that begin.
pub fn mark<B: Markable>(values: &[B], range: &BitRange<B>, words: &mut [u32]) {
    B::mark(values, range, words);
}

macro_rules! markable {
    ($($bits:ty, $wide:ident);*) => {$(
        impl Markable for $bits {
            fn mark(values: &[Self], range: &BitRange<Self>, words: &mut [u32]) {
                #[cfg(target_arch = "x86_64")]
                if std::is_x86_feature_detected!("avx512f") {
                    // SAFETY: the processor has what the function is compiled for.
                    return unsafe { wide::$wide(values, range, words) };
                }
                for (word, values) in words.iter_mut().zip(values.chunks(32)) {
                    let bit = |(bit, value): (usize, &$bits)| {
                        let sign = (0 as $bits).wrapping_sub(value >> (<$bits>::BITS - 1));
                        let ordered = value ^ (sign & range.magnitude) ^ range.flip;
                        let inside = ordered.wrapping_sub(range.least) <= range.span;
                        u32::from(inside != range.outside) << bit
                    };
                    *word = values.iter().enumerate().map(bit).fold(0, |word, bit| word | bit);
                }
            }
        }
    )*};
}

markable!(u32, mark_words; u64, mark_longs);

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::BitRange;

    macro_rules! wide_forms {
        ($compress:ident, $mark:ident, $value:ty, $signed:ty, $lanes:literal, $mask:ty, $part:ident,
         $set:ident, $shift:ident, $subtract:ident, $not_above:ident) => {
            #[target_feature(enable = "avx512f,popcnt")]
            pub(super) fn $compress(
                words: &[u32],
                values: &[$value],
                kept: &mut [$value],
            ) -> usize {
                let mut held = 0;
                for (word, values) in words.iter().zip(values.as_chunks::<32>().0) {
                    for (part, values) in values.as_chunks::<$lanes>().0.iter().enumerate() {
                        let mask = (word >> ($lanes * part)) as $mask;
                        let Some(room) = kept[held..].first_chunk_mut::<$lanes>() else { break };
                        // SAFETY: 64 bytes, which the array has.
                        let values = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
                        let packed = $part(mask, values);
                        // SAFETY: the same.
                        unsafe { _mm512_storeu_si512(room.as_mut_ptr().cast(), packed) };
                        held += mask.count_ones() as usize;
                    }
                }
                held
            }

            #[target_feature(enable = "avx512f")]
            pub(super) fn $mark(values: &[$value], range: &BitRange<$value>, words: &mut [u32]) {
                let all = |bits: $value| $set(bits as $signed);
                let (magnitude, flip) = (all(range.magnitude), all(range.flip));
                let (least, span) = (all(range.least), all(range.span));
                let invert = if range.outside { u32::MAX } else { 0 };
                for (word, values) in words.iter_mut().zip(values.chunks(32)) {
                    let mut filled = [0; 32];
                    let whole = match values.first_chunk::<32>() {
                        Some(values) => values,
                        None => {
                            filled[..values.len()].copy_from_slice(values);
                            &filled
                        }
                    };
                    let mut bits = 0u32;
                    for (part, values) in whole.as_chunks::<$lanes>().0.iter().enumerate() {
                        // SAFETY: 64 bytes, which the array has.
                        let values = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
                        let sign = $shift::<{ <$value>::BITS - 1 }>(values);
                        let changed = _mm512_and_si512(sign, magnitude);
                        let ordered = _mm512_xor_si512(_mm512_xor_si512(values, changed), flip);
                        let inside = $not_above($subtract(ordered, least), span);
                        bits |= u32::from(inside) << ($lanes * part);
                    }
                    *word = (bits ^ invert) & u32::MAX >> (32 - values.len());
                }
            }
        };
    }

    wide_forms!(
        compress_words,
        mark_words,
        u32,
        i32,
        16,
        u16,
        _mm512_maskz_compress_epi32,
        _mm512_set1_epi32,
        _mm512_srai_epi32,
        _mm512_sub_epi32,
        _mm512_cmple_epu32_mask
    );
    wide_forms!(
        compress_longs,
        mark_longs,
        u64,
        i64,
        8,
        u8,
        _mm512_maskz_compress_epi64,
        _mm512_set1_epi64,
        _mm512_srai_epi64,
        _mm512_sub_epi64,
        _mm512_cmple_epu64_mask
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize) -> Vec<u64> {
        let step = |state: &mut u64| {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            Some(*state ^ *state >> 29)
        };
        std::iter::repeat_with(|| ()).scan(7u64, |state, ()| step(state)).take(len).collect()
    }

    #[test]
    fn what_is_kept_is_what_a_plain_loop_keeps() {
        let longs = numbers(320);
        let values: Vec<u32> = longs.iter().map(|long| *long as u32).collect();
        let mut words: Vec<u32> = longs[..10].iter().map(|long| (*long >> 32) as u32).collect();
        (words[3], words[4]) = (0, u32::MAX);
        let set = |place: &usize| words[place / 32] >> (place % 32) & 1 == 1;
        let places: Vec<usize> = (0..320).filter(set).collect();
        let mut kept = vec![0; 352];
        let count = compress(&words, &values, &mut kept);
        assert!(kept[..count].iter().eq(places.iter().map(|place| &values[*place])));
        let count = compress_plainly(&words, &values, &mut kept);
        assert!(kept[..count].iter().eq(places.iter().map(|place| &values[*place])));
        let mut kept = vec![0; 352];
        let count = compress(&words, &longs, &mut kept);
        assert!(kept[..count].iter().eq(places.iter().map(|place| &longs[*place])));
    }

    #[test]
    fn marks_are_those_of_the_range_and_none_behind_the_end() {
        let longs = numbers(77);
        for outside in [false, true] {
            for magnitude in [0, u64::MAX >> 1] {
                let (flip, least, span) = (1 << 63, 1 << 62, 1 << 63);
                let range = BitRange { magnitude, flip, least, span, outside };
                let mut words = [!0; 3];
                mark(&longs, &range, &mut words);
                for (place, value) in longs.iter().enumerate() {
                    let changed = if value >> 63 == 1 { magnitude } else { 0 };
                    let inside = (value ^ changed ^ flip).wrapping_sub(least) <= span;
                    let bit = words[place / 32] >> (place % 32) & 1 == 1;
                    assert_eq!(bit, inside != outside, "{place}");
                }
                assert_eq!(words[2] >> (77 - 64), 0);
                let values: Vec<u32> = longs.iter().map(|long| (long >> 32) as u32).collect();
                let high = |bits: u64| (bits >> 32) as u32;
                let range = BitRange {
                    magnitude: high(magnitude),
                    flip: high(flip),
                    least: high(least),
                    span: high(span),
                    outside,
                };
                let mut narrow = [0; 3];
                mark(&values, &range, &mut narrow);
                // The same but for values whose high half equals an end's.
                assert_eq!(narrow, words);
            }
        }
    }
}
