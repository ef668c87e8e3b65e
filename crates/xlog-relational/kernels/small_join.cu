// Joins of small tables: one block finds all that xlog_join_expand needs, whatever the keys.
//
// The build rows go into a table in shared memory and are sorted by the first row of their key, so
// that those of one key lie side by side, in order. Each probe row then looks up its key and finds
// its part of that list; those with output are numbered in order. The output comes in the order of
// the probe rows, and for each in that of the build rows.
//
// Some 10 us for a thousand rows on either side, where the long way launches eight kernels and
// waits twice. One multiprocessor is all it uses: with many more rows a grid is faster.
//
// Launch shape: one block of 512 threads. At most 2048 build rows, any number of probe rows below
// 2^20. Outputs must not overlap inputs.

#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

#include "hash.cuh"
#include "join.cuh"
#include "one_block.cuh"

namespace {

using u16 = unsigned short;

constexpr u32 kBuildItems = 4;
constexpr u32 kMostBuild = kBlock * kBuildItems;
constexpr u32 kSlots = 2 * kMostBuild;
constexpr u32 kProbeItems = 2;
// In place of a first row: rows without a key are sorted behind all others, and places without a
// row behind those.
constexpr u32 kNoKey = kMostBuild;
constexpr u32 kNoRow = kMostBuild + 1;

// One side: how many rows there are, which have a key, what stands for them in the output.
struct Side {
    const u32* values;
    u32 has_values;
    const u32* valid;
    u32 has_valid;
    u32 rows;
    __device__ __forceinline__ bool has_key(u32 at) const {
        return !has_valid || bit_of(valid, at);
    }
    __device__ __forceinline__ u32 value(u32 at) const { return has_values ? values[at] : at; }
};

// What the block writes, as xlog_join_expand reads it.
struct Found {
    u32* list;
    u64* starts;
    u64* ranges;
    u32* positions;
    u64* control;
};

template <typename Keys>
__device__ void join(const Keys& build_keys, const Side& build, const Keys& probe_keys,
                     const Side& probe, u32 kind, const Found& found) {
    using Sort = cub::BlockRadixSort<u32, kBlock, kBuildItems>;
    using Scan = cub::BlockScan<u64, kBlock, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ u32 entries[kSlots];
    __shared__ union {
        typename Sort::TempStorage sort;
        u32 sorted[kMostBuild];
    } scratch;
    __shared__ typename Scan::TempStorage scan;
    // By first rows: where the rows of a key start in the list, where they end, whether a probe row
    // has met them.
    __shared__ u16 starts[kMostBuild];
    __shared__ u16 ends[kMostBuild];
    __shared__ u32 met[kMostBuild / 32];

    clear(entries);
    if (threadIdx.x < kMostBuild / 32) {
        met[threadIdx.x] = 0;
    }
    __syncthreads();

    // The rows of a thread follow each other: a stable sort leaves rows of one key in order.
    const u32 each = rows_each(build.rows);
    const u32 mine = threadIdx.x * each;
    u32 slot[kBuildItems];
#pragma unroll
    for (u32 k = 0; k < kBuildItems; ++k) {
        const u32 row = mine + k;
        slot[k] = kFree;
        if (k < each && row < build.rows && build.has_key(row)) {
            slot[k] = find_or_insert(entries, build_keys, build_keys.key(row), row);
        }
    }
    __syncthreads();
    u32 first[kBuildItems];
#pragma unroll
    for (u32 k = 0; k < kBuildItems; ++k) {
        first[k] = k < each && mine + k < build.rows ? kNoKey : kNoRow;
        if (slot[k] != kFree) {
            first[k] = first_row(entries, slot[k]);
        }
    }
    // For existence alone nobody asks for the list. The kind is that of all threads.
    if (kind != kSemi && kind != kAnti) {
        // The first row of the key above, the row below.
        u32 item[kBuildItems];
#pragma unroll
        for (u32 k = 0; k < kBuildItems; ++k) {
            item[k] = (first[k] << kRowBits) | ((mine + k) & kRowMask);
        }
        Sort(scratch.sort).Sort(item, kRowBits, 2 * kRowBits);
        // The sort's memory is used again.
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < kBuildItems; ++k) {
            scratch.sorted[threadIdx.x * kBuildItems + k] = item[k];
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < build.rows; i += kBlock) {
            const u32 here = scratch.sorted[i];
            const u32 key = here >> kRowBits;
            found.list[i] = build.value(here & kRowMask);
            if (key < kMostBuild) {
                if (i == 0 || scratch.sorted[i - 1] >> kRowBits != key) {
                    starts[key] = static_cast<u16>(i);
                }
                if (i + 1 == build.rows || scratch.sorted[i + 1] >> kRowBits != key) {
                    ends[key] = static_cast<u16>(i + 1);
                }
            }
        }
        __syncthreads();
    }

    // Probe rows with output so far above, output rows below.
    u64 so_far = 0;
    for (u32 tile = 0; tile < probe.rows; tile += kBlock * kProbeItems) {
        u64 range[kProbeItems];
        u64 sum = 0;
#pragma unroll
        for (u32 k = 0; k < kProbeItems; ++k) {
            const u32 row = tile + threadIdx.x * kProbeItems + k;
            u32 start = kNone;
            u32 count = 0;
            if (row < probe.rows) {
                u32 key = kNoKey;
                if (probe.has_key(row)) {
                    key = find(entries, build_keys, probe_keys.key(row), kNoKey);
                }
                if (key == kNoKey) {
                    count = kind == kLeft || kind == kFull || kind == kAnti ? 1 : 0;
                } else if (kind == kSemi || kind == kAnti) {
                    count = kind == kSemi ? 1 : 0;
                } else {
                    start = starts[key];
                    count = ends[key] - start;
                    if (kind == kFull) {
                        atomicOr(&met[key >> 5], 1u << (key & 31));
                    }
                }
            }
            range[k] = (static_cast<u64>(start) << 32) | count;
            sum += (static_cast<u64>(count != 0) << 32) | count;
        }
        u64 before;
        u64 all;
        Scan(scan).ExclusiveSum(sum, before, all);
        before += so_far;
        so_far += all;
#pragma unroll
        for (u32 k = 0; k < kProbeItems; ++k) {
            const u32 count = static_cast<u32>(range[k]);
            if (count != 0) {
                const u32 to = static_cast<u32>(before >> 32);
                found.starts[to] = static_cast<u32>(before);
                found.ranges[to] = range[k];
                found.positions[to] = tile + threadIdx.x * kProbeItems + k;
                before += (1ull << 32) | count;
            }
        }
        // The scan's memory is used again.
        __syncthreads();
    }

    // Build rows that nobody met come last, as the partners of one row that is not there. Their
    // list lies behind that of all rows.
    if (kind == kFull) {
        bool lonely[kBuildItems];
        u64 sum = 0;
#pragma unroll
        for (u32 k = 0; k < kBuildItems; ++k) {
            lonely[k] = first[k] == kNoKey ||
                        (first[k] < kMostBuild && !(met[first[k] >> 5] >> (first[k] & 31) & 1u));
            sum += lonely[k];
        }
        u64 before;
        u64 all;
        Scan(scan).ExclusiveSum(sum, before, all);
#pragma unroll
        for (u32 k = 0; k < kBuildItems; ++k) {
            if (lonely[k]) {
                found.list[build.rows + before] = build.value(mine + k);
                ++before;
            }
        }
        if (all != 0) {
            if (threadIdx.x == 0) {
                const u32 to = static_cast<u32>(so_far >> 32);
                found.starts[to] = static_cast<u32>(so_far);
                found.ranges[to] = (static_cast<u64>(build.rows) << 32) | all;
                found.positions[to] = kNone;
            }
            so_far += (1ull << 32) | all;
        }
    }
    if (threadIdx.x < kControlWords) {
        const u64 matches = threadIdx.x == kMatches ? so_far >> 32 : 0;
        found.control[threadIdx.x] = threadIdx.x == kOutput ? static_cast<u32>(so_far) : matches;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(512)
    xlog_join_small_u32(const u32* __restrict__ build_keys, const u32* __restrict__ build_values,
                        u32 has_build_values, const u32* __restrict__ build_valid,
                        u32 has_build_valid, const u32* __restrict__ probe_keys,
                        const u32* __restrict__ probe_valid, u32 has_probe_valid, u32 mask,
                        u32 kind, u32* __restrict__ list, u64* __restrict__ starts,
                        u64* __restrict__ ranges, u32* __restrict__ positions,
                        u64* __restrict__ control, u64 build_rows, u64 probe_rows) {
    join(BlockWords{build_keys, mask},
         Side{build_values, has_build_values, build_valid, has_build_valid,
              static_cast<u32>(build_rows)},
         BlockWords{probe_keys, mask},
         Side{nullptr, 0, probe_valid, has_probe_valid, static_cast<u32>(probe_rows)}, kind,
         Found{list, starts, ranges, positions, control});
}

extern "C" __global__ void __launch_bounds__(512)
    xlog_join_small_u64(const u64* __restrict__ build_keys, const u32* __restrict__ build_extra,
                        const u32* __restrict__ build_valid, u32 has_build_valid,
                        const u64* __restrict__ probe_keys, const u32* __restrict__ probe_extra,
                        const u32* __restrict__ probe_valid, u32 has_probe_valid, u32 has_extra,
                        u32 mask, u32 kind, u32* __restrict__ list, u64* __restrict__ starts,
                        u64* __restrict__ ranges, u32* __restrict__ positions,
                        u64* __restrict__ control, u64 build_rows, u64 probe_rows) {
    join(BlockLongs{build_keys, build_extra, has_extra, mask},
         Side{nullptr, 0, build_valid, has_build_valid, static_cast<u32>(build_rows)},
         BlockLongs{probe_keys, probe_extra, has_extra, mask},
         Side{nullptr, 0, probe_valid, has_probe_valid, static_cast<u32>(probe_rows)}, kind,
         Found{list, starts, ranges, positions, control});
}
