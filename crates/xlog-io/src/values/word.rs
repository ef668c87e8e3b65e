//! Up to eight characters as one word, so that a short number takes a few operations rather than a
//! loop whose end no processor foresees.

const ZEROES: u64 = 0x3030_3030_3030_3030;

/// Up to eight characters as their digits, the first in the lowest byte that is not padding; zeroes
/// pad them in front.
#[inline(always)]
pub(super) fn padded_digits(text: &[u8]) -> u64 {
    padded(text) ^ (ZEROES << padding(text.len()))
}

/// Up to eight characters, with zero bytes in front of them.
#[inline(always)]
pub(super) fn padded(text: &[u8]) -> u64 {
    let length = text.len();
    let word = match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        // The two overlap where there are fewer than eight, and have the same bytes there.
        (Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << ((8 * (length - 4)) & 63)
        }
        _ => match *text {
            [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
            [a, b] => u64::from(a) | u64::from(b) << 8,
            [a] => u64::from(a),
            _ => return 0,
        },
    };
    word << padding(length)
}

/// Bits of padding in front of so many characters.
#[inline(always)]
fn padding(length: usize) -> usize {
    (8 * 8usize.saturating_sub(length)) & 63
}

/// The value of eight digits, the first in the lowest byte, if they all are digits.
#[inline(always)]
pub(super) fn digits_value(word: u64) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    // A byte above 9 has a high bit, or gets one when 6 is added.
    if (word | word.wrapping_add(0x0606_0606_0606_0606)) & HIGH != 0 {
        return None;
    }
    // Pairs of digits, then pairs of pairs, then both halves.
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    let high = (pairs & PAIRS).wrapping_mul(0x000f_4240_0000_0064);
    let low = ((pairs >> 16) & PAIRS).wrapping_mul(0x0000_2710_0000_0001);
    Some(high.wrapping_add(low) >> 32)
}

/// Takes a point out of up to eight characters: the digits without it, and how many stand behind
/// it. `None` if there is no point.
#[inline(always)]
pub(super) fn without_point(text: &[u8]) -> Option<(u64, usize)> {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let word = padded(text);
    let differing = word ^ 0x2e2e_2e2e_2e2e_2e2e;
    // The highest bit of each byte that is a point.
    let points = !(((differing & LOW) + LOW) | differing | LOW);
    if points == 0 {
        return None;
    }
    let place = points.trailing_zeros() as usize / 8;
    let before = word & ((1 << (8 * place)) - 1);
    let behind = if place == 7 { 0 } else { word >> (8 * (place + 1)) << (8 * (place + 1)) };
    // What stood before the point moves into its place, and one more byte in front is padding. A
    // second point is no digit, and found as such.
    let digits = (before << 8 | behind) ^ (ZEROES << ((padding(text.len()) + 8) & 63));
    let digits = if text.len() == 1 { 0 } else { digits };
    Some((digits, 7 - place))
}
