// Sorts of 32-bit keys.

#include "radix_sort.cuh"

XLOG_SORT_KEYS(32, u32)
