// Sorts of 32-bit keys with 64-bit values.

#include "radix_sort.cuh"

XLOG_SORT_PAIRS(32, u32, 64, u64)
