// Compaction: the values, or the row numbers, of the rows that are selected, in their order.
//
// Launch shape: one dimension, one block for each tile; the tiles below are part of the contract
// with the host side. Counts are 64-bit at the boundary and below 2^32 inside. `tiles` are the
// look-back words of `xlog_tiles_init_32`, which ran before; a single tile needs none.
// Aliasing: outputs must not overlap inputs.
//
// Work is done by CUB's selection agent, with the tunings that CUB has for compute capability 9.0.

#include <cub/agent/agent_select_if.cuh>

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

// Whether a value lies in a range, by the order of its type; or whether it does not. Every
// comparison with a literal is one of these two, and costs a subtraction and a comparison.
//
// `magnitude` and `flip` change bits so that their unsigned order is the order of the values.
template <typename Bits>
struct InRange {
    Bits magnitude;
    Bits flip;
    Bits least;
    Bits span;
    bool outside;

    __device__ __forceinline__ bool operator()(Bits bits) const {
        constexpr int last = 8 * sizeof(Bits) - 1;
        const Bits sign = Bits(0) - (bits >> last);
        const Bits ordered = bits ^ (sign & magnitude) ^ flip;
        return (ordered - least <= span) != outside;
    }
};

// What random access iterators of this file share: values that are computed, not stored.
template <typename Self, typename Value>
struct Computed {
    using iterator_category = cuda::std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = long long;
    using pointer = const Value*;
    using reference = Value;

    __device__ __forceinline__ Value operator[](u64 i) const {
        return static_cast<const Self&>(*this).at(i);
    }
    __device__ __forceinline__ Value operator*() const { return (*this)[0]; }
    __device__ __forceinline__ Self operator+(u64 i) const {
        return static_cast<const Self&>(*this).moved(i);
    }
};

// The row numbers.
struct Rows : Computed<Rows, u32> {
    u32 first;

    __device__ __forceinline__ explicit Rows(u32 first) : first(first) {}
    __device__ __forceinline__ u32 at(u64 i) const { return first + static_cast<u32>(i); }
    __device__ __forceinline__ Rows moved(u64 i) const { return Rows(at(i)); }
};

// The bits of a mask, 32 to a word, the lowest first.
struct MaskBits : Computed<MaskBits, u32> {
    const u32* words;
    u64 first;

    __device__ __forceinline__ MaskBits(const u32* words, u64 first) : words(words), first(first) {}
    __device__ __forceinline__ u32 at(u64 i) const {
        const u64 bit = first + i;
        return (words[bit / 32] >> (bit % 32)) & 1u;
    }
    __device__ __forceinline__ MaskBits moved(u64 i) const { return MaskBits(words, first + i); }
};

// All of the input is one piece: nothing comes before it.
struct OnePiece {
    __device__ __forceinline__ u32 input_offset() const { return 0; }
    __device__ __forceinline__ u32 num_previously_selected() const { return 0; }
    __device__ __forceinline__ void update_num_selected(u64* count, u32 selected) const {
        *count = selected;
    }
};

template <int Threads, int Items, cub::BlockLoadAlgorithm Load, unsigned Delay, unsigned Latency>
using Policy = cub::AgentSelectIfPolicy<Threads, Items, Load, cub::LOAD_DEFAULT,
                                        cub::BLOCK_SCAN_WARP_SCANS,
                                        cub::detail::fixed_delay_constructor_t<Delay, Latency>>;

constexpr int kThreads = 384;
using Values32 = Policy<kThreads, 17, cub::BLOCK_LOAD_WARP_TRANSPOSE, 76, 1150>;
using Values64 = Policy<kThreads, 11, cub::BLOCK_LOAD_WARP_TRANSPOSE, 380, 1140>;
using Flagged32 = Policy<kThreads, 15, cub::BLOCK_LOAD_DIRECT, 415, 1125>;
using Flagged64 = Policy<kThreads, 11, cub::BLOCK_LOAD_DIRECT, 360, 1170>;
// Row numbers are computed and flags come from memory: those are what is loaded side by side.
using Rows32 = Policy<kThreads, 15, cub::BLOCK_LOAD_WARP_TRANSPOSE, 415, 1125>;
using Rows64 = Policy<kThreads, 11, cub::BLOCK_LOAD_WARP_TRANSPOSE, 360, 1170>;

template <typename SelectPolicy, typename Input, typename Flags, typename Output, typename Select>
__device__ __forceinline__ void select(Input input, Flags flags, Output* output, u64* count,
                                       u64* tiles, u64 rows, u32 tile_count, Select condition) {
    using Agent =
        cub::detail::select::AgentSelectIf<SelectPolicy, Input, Flags, Output*, Select,
                                           cub::NullType, u32, OnePiece, cub::SelectImpl::Select>;
    __shared__ typename Agent::TempStorage storage;
    typename Agent::ScanTileStateT state;
    state.d_tile_descriptors = reinterpret_cast<decltype(state.d_tile_descriptors)>(tiles);
    const OnePiece piece;
    Agent(storage, input, flags, output, condition, cub::NullType{}, static_cast<u32>(rows), piece)
        .ConsumeRange(static_cast<int>(tile_count), state, count);
}

}  // namespace

#define XLOG_SELECT_RANGE(WIDTH, BITS)                                                           \
    extern "C" __global__ void __launch_bounds__(kThreads) xlog_select_range_##WIDTH(            \
        const BITS* values, BITS* selected, u64* count, u64* tiles, u64 rows, u32 tile_count,    \
        BITS magnitude, BITS flip, BITS least, BITS span, u32 outside) {                         \
        const InRange<BITS> condition{magnitude, flip, least, span, outside != 0};               \
        cub::NullType* none = nullptr;                                                           \
        select<Values##WIDTH>(values, none, selected, count, tiles, rows, tile_count,            \
                              condition);                                                        \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(kThreads) xlog_select_range_rows_##WIDTH(       \
        const BITS* values, u32* selected, u64* count, u64* tiles, u64 rows, u32 tile_count,     \
        BITS magnitude, BITS flip, BITS least, BITS span, u32 outside) {                         \
        const InRange<BITS> condition{magnitude, flip, least, span, outside != 0};               \
        select<Rows##WIDTH>(Rows(0), values, selected, count, tiles, rows, tile_count,           \
                            condition);                                                          \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(kThreads) xlog_select_mask_##WIDTH(             \
        const BITS* values, const u32* mask, BITS* selected, u64* count, u64* tiles, u64 rows,   \
        u64 words, u32 tile_count) {                                                             \
        select<Flagged##WIDTH>(values, MaskBits(mask, 0), selected, count, tiles, rows,          \
                               tile_count, cub::NullType{});                                     \
    }

XLOG_SELECT_RANGE(32, u32)
XLOG_SELECT_RANGE(64, u64)

extern "C" __global__ void __launch_bounds__(kThreads)
    xlog_select_mask_rows(const u32* mask, u32* selected, u64* count, u64* tiles, u64 rows,
                          u64 words, u32 tile_count) {
    select<Flagged32>(Rows(0), MaskBits(mask, 0), selected, count, tiles, rows, tile_count,
                      cub::NullType{});
}
