// Variants of a selection of values of four bytes by a range, for `examples/bench_select.rs`.
//
// Names say how tiles come to blocks (handed, byblock), how values get out (staged, direct), threads
// by items, blocks that a multiprocessor is to run at a time, and words of a lane in a look-back.
// The example knows the same figures.

#include "compaction.cuh"

#include <cub/agent/agent_select_if.cuh>

#define XLOG_VARIANT_NAME(ORDER, WRITE, THREADS, ITEMS, BLOCKS, WORDS)                           \
    xlog_select_##ORDER##_##WRITE##_##THREADS##x##ITEMS##_b##BLOCKS##_w##WORDS

#define XLOG_VARIANT(ORDER, WRITE, THREADS, ITEMS, BLOCKS, WORDS)                                \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                \
        XLOG_VARIANT_NAME(ORDER, WRITE, THREADS, ITEMS, BLOCKS, WORDS)(                          \
            const u32* values, u32* selected, u64* count, u64* tiles, u64 rows, u32 tile_count,  \
            u32 magnitude, u32 flip, u32 least, u32 span, u32 outside) {                         \
        ByRange<u32, ITEMS, false> source;                                                       \
        source.values = values;                                                                  \
        source.condition = {magnitude, flip, least, span, outside != 0};                         \
        using Tuned = Tuning<THREADS, ITEMS, k_##ORDER, k_##WRITE, WORDS>;                       \
        compact<Tuned>(source, selected, count, tiles, static_cast<u32>(rows), tile_count);      \
    }

namespace {

constexpr Tiles k_handed = Tiles::Handed;
constexpr Tiles k_byblock = Tiles::ByBlock;
constexpr Write k_staged = Write::Staged;
constexpr Write k_direct = Write::Direct;

// All of the input is one piece: nothing comes before it.
struct OnePiece {
    __device__ __forceinline__ u32 input_offset() const { return 0; }
    __device__ __forceinline__ u32 num_previously_selected() const { return 0; }
    __device__ __forceinline__ void update_num_selected(u64* count, u32 selected) const {
        *count = selected;
    }
};

constexpr int kCubThreads = 384;
using Cub = cub::AgentSelectIfPolicy<kCubThreads, 17, cub::BLOCK_LOAD_WARP_TRANSPOSE,
                                     cub::LOAD_DEFAULT, cub::BLOCK_SCAN_WARP_SCANS,
                                     cub::detail::fixed_delay_constructor_t<76, 1150>>;
using Condition = InRange<u32>;
using Agent = cub::detail::select::AgentSelectIf<Cub, const u32*, cub::NullType*, u32*, Condition,
                                                 cub::NullType, u32, OnePiece,
                                                 cub::SelectImpl::Select>;

}  // namespace

// CUB's agent with CUB's tuning. Its words are not zero at first: `xlog_select_cub_init` ran before.
extern "C" __global__ void __launch_bounds__(kCubThreads)
    xlog_select_cub(const u32* values, u32* selected, u64* count, u64* tiles, u64 rows,
                    u32 tile_count, u32 magnitude, u32 flip, u32 least, u32 span, u32 outside) {
    __shared__ typename Agent::TempStorage storage;
    typename Agent::ScanTileStateT state;
    state.d_tile_descriptors = reinterpret_cast<decltype(state.d_tile_descriptors)>(tiles);
    const Condition condition{magnitude, flip, least, span, outside != 0};
    cub::NullType* none = nullptr;
    Agent(storage, values, none, selected, condition, cub::NullType{}, static_cast<u32>(rows),
          OnePiece{})
        .ConsumeRange(static_cast<int>(tile_count), state, count);
}

extern "C" __global__ void xlog_select_cub_init(u64* tiles, u64 words, u32 tile_count) {
    cub::ScanTileState<u32> state;
    state.d_tile_descriptors = reinterpret_cast<uint2*>(tiles);
    state.InitializeStatus(static_cast<int>(tile_count));
}

XLOG_VARIANT(handed, staged, 256, 16, 4, 4)
XLOG_VARIANT(handed, staged, 256, 16, 5, 4)
XLOG_VARIANT(handed, staged, 256, 20, 4, 4)
XLOG_VARIANT(handed, staged, 256, 20, 5, 4)
XLOG_VARIANT(handed, staged, 256, 24, 3, 4)
XLOG_VARIANT(handed, staged, 256, 24, 4, 4)
XLOG_VARIANT(handed, staged, 256, 32, 3, 4)
XLOG_VARIANT(handed, staged, 256, 32, 4, 4)
XLOG_VARIANT(handed, staged, 128, 32, 8, 4)
XLOG_VARIANT(handed, staged, 384, 16, 3, 4)
XLOG_VARIANT(handed, staged, 384, 20, 3, 4)
XLOG_VARIANT(handed, staged, 384, 24, 2, 4)
XLOG_VARIANT(handed, staged, 512, 12, 3, 4)
XLOG_VARIANT(handed, staged, 512, 16, 2, 4)
XLOG_VARIANT(handed, staged, 512, 20, 2, 4)
XLOG_VARIANT(handed, staged, 512, 24, 2, 4)
XLOG_VARIANT(handed, staged, 256, 24, 4, 1)
XLOG_VARIANT(handed, staged, 256, 24, 4, 2)
XLOG_VARIANT(handed, staged, 256, 24, 4, 8)
XLOG_VARIANT(handed, staged, 256, 28, 4, 4)
XLOG_VARIANT(handed, staged, 256, 32, 4, 2)
XLOG_VARIANT(handed, staged, 256, 32, 4, 8)
XLOG_VARIANT(handed, staged, 512, 24, 2, 8)
XLOG_VARIANT(handed, direct, 256, 16, 4, 4)
XLOG_VARIANT(handed, direct, 256, 24, 4, 4)
XLOG_VARIANT(byblock, staged, 256, 16, 5, 4)
XLOG_VARIANT(byblock, staged, 256, 24, 4, 4)
XLOG_VARIANT(byblock, staged, 384, 16, 3, 4)
XLOG_VARIANT(byblock, staged, 512, 12, 3, 4)
XLOG_VARIANT(byblock, staged, 512, 16, 2, 4)
XLOG_VARIANT(byblock, staged, 256, 24, 4, 1)
XLOG_VARIANT(byblock, direct, 256, 16, 5, 4)
XLOG_VARIANT(byblock, direct, 256, 24, 4, 4)
XLOG_VARIANT(byblock, direct, 384, 16, 3, 4)
XLOG_VARIANT(byblock, direct, 512, 12, 3, 4)
