// Sorts of 64-bit keys.

#include "radix_sort.cuh"

XLOG_SORT_KEYS(64, u64)
