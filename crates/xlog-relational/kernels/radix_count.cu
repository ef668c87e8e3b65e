// What every radix sort launches before its sweeps.

#include "radix_sort.cuh"

XLOG_HISTOGRAM(xlog_radix_histogram_32, u32)
XLOG_HISTOGRAM(xlog_radix_histogram_64, u64)

// bins[sweep][digit] = how many keys have a smaller digit; a block for each sweep.
extern "C" __global__ void __launch_bounds__(kDigits) xlog_radix_starts(u32* bins, u64 count) {
    using Scan = cub::BlockScan<u32, kDigits>;
    __shared__ typename Scan::TempStorage storage;
    const u64 bin = static_cast<u64>(blockIdx.x) * kDigits + threadIdx.x;
    u32 start;
    Scan(storage).ExclusiveSum(bins[bin], start);
    bins[bin] = start;
}
