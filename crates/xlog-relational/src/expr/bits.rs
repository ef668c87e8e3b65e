//! Flags of rows packed into words, for the host's kernels.

use xlog_driver::host::KernelFault;

/// Packs the first `rows` flags, each 0 or 1, into words, first row first, and answers how many
/// words that takes. Flags behind them up to the next multiple of 32 are cleared.
pub(super) fn pack(words: &mut [u32], flags: &mut [u8], rows: usize) -> usize {
    let count = rows.div_ceil(32);
    flags[rows..count * 32].fill(0);
    for (word, flags) in words.iter_mut().zip(flags[..count * 32].chunks_exact(32)) {
        let mut packed = 0;
        for (byte, flags) in flags.chunks_exact(8).enumerate() {
            let mut eight = [0; 8];
            eight.copy_from_slice(flags);
            // Each of the eight flags is multiplied to a bit of its own in the highest byte.
            let bits = u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            packed |= (bits as u32) << (8 * byte);
        }
        *word = packed;
    }
    count
}

/// A length argument as this machine counts.
pub(super) fn length(n: u64) -> Result<usize, KernelFault> {
    usize::try_from(n).map_err(|_| KernelFault(format!("{n} values do not fit this machine")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_flag_has_its_bit() {
        for rows in 0..=96 {
            for step in 1..5 {
                let mut flags: Vec<u8> = (0..96).map(|row| u8::from(row % step == 0)).collect();
                let mut words = [u32::MAX; 3];
                let used = super::pack(&mut words, &mut flags, rows);
                assert_eq!(used, rows.div_ceil(32));
                for row in 0..used * 32 {
                    let expected = row < rows && row % step == 0;
                    assert_eq!(words[row / 32] >> (row % 32) & 1 == 1, expected, "row {row}");
                }
            }
        }
    }
}
