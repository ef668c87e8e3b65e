// Two tables as one, and the rows of each that a set operation keeps.
//
// Launch shape: one dimension, any grid; blocks of 256 threads where warps write words of bits.
// Lengths are 64-bit. Aliasing: outputs must not overlap inputs.

#include "sets.cuh"

namespace {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ __forceinline__ u64 first_element() {
    return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ u64 grid_stride() {
    return static_cast<u64>(gridDim.x) * blockDim.x;
}

template <typename Value>
__device__ __forceinline__ void stack(const Value* __restrict__ left,
                                      const Value* __restrict__ right, Value* __restrict__ out,
                                      u64 left_rows, u64 rows) {
    for (u64 i = first_element(); i < rows; i += grid_stride()) {
        out[i] = i < left_rows ? left[i] : right[i - left_rows];
    }
}

__device__ __forceinline__ bool bit_of(const u32* words, u64 index) {
    return (words[index >> 5] >> (index & 31)) & 1u;
}

}  // namespace

extern "C" __global__ void xlog_stack_8(const u8* __restrict__ left, const u8* __restrict__ right,
                                        u8* __restrict__ out, u64 left_rows, u64 right_rows,
                                        u64 rows) {
    stack(left, right, out, left_rows, rows);
}

extern "C" __global__ void xlog_stack_32(const u32* __restrict__ left,
                                         const u32* __restrict__ right, u32* __restrict__ out,
                                         u64 left_rows, u64 right_rows, u64 rows) {
    stack(left, right, out, left_rows, rows);
}

extern "C" __global__ void xlog_stack_64(const u64* __restrict__ left,
                                         const u64* __restrict__ right, u64* __restrict__ out,
                                         u64 left_rows, u64 right_rows, u64 rows) {
    stack(left, right, out, left_rows, rows);
}

// The bits of both; a side without any has all of them set. One warp writes one word; bits behind
// the last row are cleared.
extern "C" __global__ void xlog_stack_bits(const u32* __restrict__ left, u32 has_left,
                                           const u32* __restrict__ right, u32 has_right,
                                           u32* __restrict__ out, u64 left_rows, u64 right_rows,
                                           u64 words) {
    const u64 rows = left_rows + right_rows;
    for (u64 i = first_element(); i / 32 < words; i += grid_stride()) {
        bool set = false;
        if (i < left_rows) {
            set = !has_left || bit_of(left, i);
        } else if (i < rows) {
            set = !has_right || bit_of(right, i - left_rows);
        }
        const u32 word = __ballot_sync(0xffffffffu, set);
        if (i % 32 == 0) {
            out[i / 32] = word;
        }
    }
}

// How many rows of each table a group has: the left one's in the low half of its word, the right
// one's in the high half. Words are zero before. Lanes of one group add once for all of them, so
// that a group with most of the rows is not added to row by row.
extern "C" __global__ void xlog_set_sides(const u32* __restrict__ slots,
                                          const u32* __restrict__ numbers, u64* sides,
                                          u64 left_rows, u64 groups, u64 rows) {
    const u32 lane = threadIdx.x % 32;
    for (u64 i = first_element(); i - lane < rows; i += grid_stride()) {
        // No group has this number: there are fewer.
        const u32 group = i < rows ? numbers[slots[i]] : 0xffffffffu;
        const u32 same = __match_any_sync(0xffffffffu, group);
        const u32 left = __ballot_sync(0xffffffffu, i < left_rows);
        if (i < rows && lane == __ffs(static_cast<int>(same)) - 1) {
            const u64 above = __popc(same & left);
            const u64 below = __popc(same & ~left);
            atomicAdd(&sides[group], above | below << 32);
        }
    }
}

extern "C" __global__ void xlog_set_kept(const u64* __restrict__ sides, u32* __restrict__ copies,
                                         u32 operation, u64 groups) {
    for (u64 g = first_element(); g < groups; g += grid_stride()) {
        const u64 word = sides[g];
        copies[g] = kept(operation, static_cast<u32>(word), static_cast<u32>(word >> 32));
    }
}

// out[i] is the row of the group whose copies include number i: starts has the number of copies
// before each group, and behind them all.
extern "C" __global__ void xlog_set_expand(const u64* __restrict__ starts,
                                           const u32* __restrict__ rows, u32* __restrict__ out,
                                           u64 groups, u64 places, u64 count) {
    for (u64 i = first_element(); i < count; i += grid_stride()) {
        u64 low = 0;
        u64 high = groups;
        while (high - low > 1) {
            const u64 middle = low + (high - low) / 2;
            if (starts[middle] <= i) {
                low = middle;
            } else {
                high = middle;
            }
        }
        out[i] = rows[low];
    }
}
