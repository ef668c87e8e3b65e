//! Which of 64 bytes are a given one, as bits.

/// Bytes looked at in one go.
pub(crate) const WIDTH: usize = 64;

/// 64 bytes, ready to be compared.
pub(crate) struct Block {
    bytes: [u8; WIDTH],
}

impl Block {
    /// The bytes from `at` on. Past the end there are zeroes, which are equal to nothing that is
    /// looked for.
    #[inline(always)]
    pub(crate) fn at(text: &[u8], at: usize) -> Self {
        let rest = text.get(at..).unwrap_or(&[]);
        match rest.first_chunk::<WIDTH>() {
            Some(bytes) => Self { bytes: *bytes },
            None => {
                let mut bytes = [0; WIDTH];
                bytes[..rest.len()].copy_from_slice(rest);
                Self { bytes }
            }
        }
    }

    /// One bit for each byte that is `byte`, the lowest for the first.
    #[inline(always)]
    pub(crate) fn equal_to(&self, byte: u8) -> u64 {
        // The compiler compares whole vectors here, and gathers bits eight at a time below.
        let mut equal = [0; WIDTH];
        for (equal, other) in equal.iter_mut().zip(&self.bytes) {
            *equal = u8::from(*other == byte);
        }
        let (words, _) = equal.as_chunks::<8>();
        let mut bits = 0;
        for (place, word) in words.iter().enumerate() {
            // Bit 8n moves to bit 56 + n, and no two meet.
            let gathered = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            bits |= gathered << (8 * place);
        }
        bits
    }
}

/// For each bit, whether an odd number of bits up to and with it is set.
#[inline(always)]
pub(crate) fn running_parity(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ (bits << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_where_the_byte_is() {
        let text: Vec<u8> = (0..200u32).map(|n| (n * 37 % 11) as u8 + 1).collect();
        for at in 0..text.len() + 2 {
            for byte in 1..12 {
                let expected = (0..WIDTH)
                    .filter(|place| text.get(at + place) == Some(&byte))
                    .fold(0, |bits, place| bits | 1 << place);
                assert_eq!(Block::at(&text, at).equal_to(byte), expected, "{byte} from {at}");
            }
        }
    }

    #[test]
    fn parity_runs_upwards() {
        assert_eq!(running_parity(0b0010_0100), 0b0001_1100);
        assert_eq!(running_parity(1), u64::MAX);
        assert_eq!(running_parity(1 << 63), 1 << 63);
    }
}
