// Sorts of 64-bit keys with 64-bit values.

#include "radix_sort.cuh"

XLOG_SORT_PAIRS(64, u64, 64, u64)
