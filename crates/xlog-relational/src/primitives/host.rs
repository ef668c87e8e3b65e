//! What the host kernels of the primitives share.

use std::ops::Range;

use bytemuck::Pod;
use xlog_driver::host::{Input, KernelFault, MemoryPolicy};

/// Values read at a time: small enough to stay in the fastest cache.
pub(crate) const PIECE: usize = 1024;

/// A length argument as this machine counts.
pub(crate) fn length(n: u64) -> Result<usize, KernelFault> {
    usize::try_from(n).map_err(|_| KernelFault(format!("{n} values do not fit this machine")))
}

/// Calls `f` with the values of `range`, piece by piece.
pub(crate) fn for_each_piece<T: Pod, M: MemoryPolicy>(
    input: &Input<'_, T, M>,
    range: Range<usize>,
    mut f: impl FnMut(&[T]),
) {
    let mut piece = vec![T::zeroed(); range.len().min(PIECE)];
    for start in range.clone().step_by(PIECE) {
        let count = (range.end - start).min(PIECE);
        input.read_into(start, &mut piece[..count]);
        f(&piece[..count]);
    }
}
