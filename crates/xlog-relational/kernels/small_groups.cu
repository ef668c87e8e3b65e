// Groups and set operations of small tables: one block finds the first row of every key.
//
// Launch shape: one block of 512 threads; at most 4096 rows, of both sides together where there are
// two. Outputs must not overlap inputs.

#include <cub/block/block_scan.cuh>

#include "hash.cuh"
#include "one_block.cuh"
#include "sets.cuh"

namespace {

using u16 = unsigned short;

constexpr u32 kRowsEach = 8;
constexpr u32 kMostRows = kBlock * kRowsEach;
// Two thirds full at most: twice as many would not leave room for the counts.
constexpr u32 kSlots = kMostRows / 2 * 3;

using Scan = cub::BlockScan<u32, kBlock, cub::BLOCK_SCAN_WARP_SCANS>;

// The rows of two sides as one, the left ones first.
template <typename Keys>
struct Both {
    Keys left;
    Keys right;
    u32 left_rows;
    using Key = typename Keys::Key;
    __device__ __forceinline__ Key key(u32 at) const {
        return at < left_rows ? left.key(at) : right.key(at - left_rows);
    }
    __device__ __forceinline__ bool same(const Key& key, u32 at) const {
        return at < left_rows ? left.same(key, at) : right.same(key, at - left_rows);
    }
};

// The first row of the key of each of the `each` rows from `mine` on; kFree where there is none.
// Every thread of the block calls it.
template <typename Keys>
__device__ __forceinline__ void first_rows(u32 (&entries)[kSlots], const Keys& keys, u32 mine,
                                           u32 each, u32 rows, u32 (&first)[kRowsEach]) {
    clear(entries);
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        first[k] = kFree;
        if (k < each && mine + k < rows) {
            first[k] = find_or_insert(entries, keys, keys.key(mine + k), mine + k);
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        if (first[k] != kFree) {
            first[k] = first_row(entries, first[k]);
        }
    }
}

// Groups are numbered in the order of their first rows. A row's slot is the number of its group,
// and a slot's number the slot itself. state[0] is how many there are, state[1] stays 0: no key
// lacks a place.
template <typename Keys>
__device__ void group(const Keys& keys, u32* slots, u32* numbers, u32* rows_of, u32* state,
                      u32 rows) {
    __shared__ u32 entries[kSlots];
    __shared__ typename Scan::TempStorage scan;
    // By first rows.
    __shared__ u16 number_of[kMostRows];
    const u32 each = rows_each(rows);
    const u32 mine = threadIdx.x * each;
    u32 first[kRowsEach];
    first_rows(entries, keys, mine, each, rows, first);
    u32 sum = 0;
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        sum += first[k] == mine + k;
    }
    u32 number;
    u32 all;
    Scan(scan).ExclusiveSum(sum, number, all);
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        if (first[k] == mine + k) {
            number_of[mine + k] = static_cast<u16>(number);
            numbers[number] = number;
            rows_of[number] = mine + k;
            ++number;
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        if (first[k] != kFree) {
            slots[mine + k] = number_of[first[k]];
        }
    }
    if (threadIdx.x < 2) {
        state[threadIdx.x] = threadIdx.x == 0 ? all : 0;
    }
}

// What stands for a left row in the output: its number or its word.
template <typename Word>
struct Standing {
    using Out = Word;
    const Word* keys;
    bool as_words;
    __device__ __forceinline__ Word operator()(u32 row) const {
        return as_words ? keys[row] : static_cast<Word>(row);
    }
};

// Every key as often as it is kept, in the order of first rows. A key that is kept is a left one,
// and its first row a left row. No more rows are kept than the left side has.
template <typename Keys, typename Output>
__device__ void keep(const Keys& left, const Keys& right, u32 operation, u32 left_rows, u32 rows,
                     const Output& output, typename Output::Out* out, u64* count) {
    __shared__ u32 entries[kSlots];
    __shared__ typename Scan::TempStorage scan;
    // By first rows: left rows of the key below and right rows above; then how often it is kept
    // below, and where that starts above.
    __shared__ u32 counts[kMostRows];
    for (u32 i = threadIdx.x; i < rows; i += kBlock) {
        counts[i] = 0;
    }
    const u32 each = rows_each(rows);
    const u32 mine = threadIdx.x * each;
    u32 first[kRowsEach];
    first_rows(entries, Both<Keys>{left, right, left_rows}, mine, each, rows, first);
    // How many left rows of the key were counted before.
    u32 ticket[kRowsEach];
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        ticket[k] = 0;
        if (first[k] != kFree) {
            const u32 one = mine + k < left_rows ? 1u : 1u << 16;
            ticket[k] = atomicAdd(&counts[first[k]], one) & 0xffffu;
        }
    }
    __syncthreads();
    u32 copies[kRowsEach];
    u32 sum = 0;
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        copies[k] = 0;
        if (first[k] == mine + k && mine + k < left_rows) {
            const u32 both = counts[mine + k];
            copies[k] = kept(operation, both & 0xffffu, both >> 16);
        }
        sum += copies[k];
    }
    u32 start;
    u32 all;
    Scan(scan).ExclusiveSum(sum, start, all);
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        if (first[k] == mine + k && mine + k < left_rows) {
            counts[mine + k] = (start << 16) | copies[k];
            start += copies[k];
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < kRowsEach; ++k) {
        if (first[k] != kFree && mine + k < left_rows) {
            const u32 place = counts[first[k]];
            if (ticket[k] < (place & 0xffffu)) {
                out[(place >> 16) + ticket[k]] = output(first[k]);
            }
        }
    }
    if (threadIdx.x == 0) {
        *count = all;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(512)
    xlog_group_small_u32(const u32* __restrict__ keys, u32 mask, u32* __restrict__ slots,
                         u32* __restrict__ numbers, u32* __restrict__ rows_of,
                         u32* __restrict__ state, u64 rows) {
    group(BlockWords{keys, mask}, slots, numbers, rows_of, state, static_cast<u32>(rows));
}

extern "C" __global__ void __launch_bounds__(512)
    xlog_group_small_u64(const u64* __restrict__ keys, const u32* __restrict__ extra,
                         u32 has_extra, u32 mask, u32* __restrict__ slots,
                         u32* __restrict__ numbers, u32* __restrict__ rows_of,
                         u32* __restrict__ state, u64 rows) {
    group(BlockLongs{keys, extra, has_extra, mask}, slots, numbers, rows_of, state,
          static_cast<u32>(rows));
}

// The rows that are kept, as numbers of left rows or as the words themselves.
extern "C" __global__ void __launch_bounds__(512)
    xlog_set_small_u32(const u32* __restrict__ left, const u32* __restrict__ right, u32 mask,
                       u32 operation, u32 as_words, u32* __restrict__ out,
                       u64* __restrict__ count, u64 left_rows, u64 right_rows) {
    keep(BlockWords{left, mask}, BlockWords{right, mask}, operation, static_cast<u32>(left_rows),
         static_cast<u32>(left_rows + right_rows), Standing<u32>{left, as_words != 0}, out, count);
}

extern "C" __global__ void __launch_bounds__(512)
    xlog_set_small_u64(const u64* __restrict__ left, const u32* __restrict__ left_extra,
                       const u64* __restrict__ right, const u32* __restrict__ right_extra,
                       u32 has_extra, u32 mask, u32 operation, u32* __restrict__ out,
                       u64* __restrict__ count, u64 left_rows, u64 right_rows) {
    keep(BlockLongs{left, left_extra, has_extra, mask},
         BlockLongs{right, right_extra, has_extra, mask}, operation, static_cast<u32>(left_rows),
         static_cast<u32>(left_rows + right_rows), Standing<u32>{nullptr, false}, out, count);
}

extern "C" __global__ void __launch_bounds__(512)
    xlog_set_small_longs(const u64* __restrict__ left, const u64* __restrict__ right, u32 mask,
                         u32 operation, u64* __restrict__ out, u64* __restrict__ count,
                         u64 left_rows, u64 right_rows) {
    keep(BlockLongs{left, nullptr, 0, mask}, BlockLongs{right, nullptr, 0, mask}, operation,
         static_cast<u32>(left_rows), static_cast<u32>(left_rows + right_rows),
         Standing<u64>{left, true}, out, count);
}
