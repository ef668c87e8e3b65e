// Selections: the values, or the row numbers, of the rows that are selected, in their order.
//
// Launch shape: one dimension, blocks of `kThreads`; any number of blocks is right, and as many as
// the device runs at a time is best. The tiles below are part of the contract with the host side.
// Counts are 64-bit at the boundary and below 2^32 inside. `tiles` is as `compact` has it: all
// zero, unless there is a single tile. Aliasing: outputs must not overlap inputs.

#include "compaction.cuh"

namespace {

constexpr int kThreads = 256;
// Blocks that a multiprocessor is to run at a time.
constexpr int kBlocks = 4;
using Values32 = Tuning<kThreads, 32>;
using Values64 = Tuning<kThreads, 16>;

}  // namespace

#define XLOG_SELECT(WIDTH, BITS)                                                                 \
    extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) xlog_select_range_##WIDTH(   \
        const BITS* values, BITS* selected, u64* count, u64* tiles, u64 rows, u32 tile_count,    \
        BITS magnitude, BITS flip, BITS least, BITS span, u32 outside) {                         \
        ByRange<BITS, Values##WIDTH::kItems, false> source;                                      \
        source.values = values;                                                                  \
        source.condition = {magnitude, flip, least, span, outside != 0};                         \
        compact<Values##WIDTH>(source, selected, count, tiles, static_cast<u32>(rows),           \
                               tile_count);                                                      \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)                              \
        xlog_select_range_rows_##WIDTH(const BITS* values, u32* selected, u64* count, u64* tiles, \
                                       u64 rows, u32 tile_count, BITS magnitude, BITS flip,      \
                                       BITS least, BITS span, u32 outside) {                     \
        ByRange<BITS, Values##WIDTH::kItems, true> source;                                       \
        source.values = values;                                                                  \
        source.condition = {magnitude, flip, least, span, outside != 0};                         \
        compact<Values##WIDTH>(source, selected, count, tiles, static_cast<u32>(rows),           \
                               tile_count);                                                      \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) xlog_select_mask_##WIDTH(    \
        const BITS* values, const u32* mask, BITS* selected, u64* count, u64* tiles, u64 rows,   \
        u64 words, u32 tile_count) {                                                             \
        ByMask<BITS, Values##WIDTH::kItems> source;                                              \
        source.mask = mask;                                                                      \
        source.values = values;                                                                  \
        compact<Values##WIDTH>(source, selected, count, tiles, static_cast<u32>(rows),           \
                               tile_count);                                                      \
    }

XLOG_SELECT(32, u32)
XLOG_SELECT(64, u64)

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    xlog_select_mask_rows(const u32* mask, u32* selected, u64* count, u64* tiles, u64 rows,
                          u64 words, u32 tile_count) {
    RowsByMask<Values32::kItems> source;
    source.mask = mask;
    compact<Values32>(source, selected, count, tiles, static_cast<u32>(rows), tile_count);
}
