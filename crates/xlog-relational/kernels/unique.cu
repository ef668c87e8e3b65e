// Runs of equal values: the first of each, and where it starts.
//
// Launch shape: one dimension, one block for each tile, as in select.cu. Values are equal if their
// bits are.
// Aliasing: outputs must not overlap inputs.

#include <cub/agent/agent_select_if.cuh>

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

// Whether a row starts a run.
template <typename Bits>
struct Heads {
    using iterator_category = cuda::std::random_access_iterator_tag;
    using value_type = u32;
    using difference_type = long long;
    using pointer = const u32*;
    using reference = u32;

    const Bits* values;
    u64 first;

    __device__ __forceinline__ u32 operator[](u64 i) const {
        const u64 row = first + i;
        return row == 0 || values[row] != values[row - 1];
    }
    __device__ __forceinline__ u32 operator*() const { return (*this)[0]; }
    __device__ __forceinline__ Heads operator+(u64 i) const { return {values, first + i}; }
};

// The row numbers.
struct Rows {
    using iterator_category = cuda::std::random_access_iterator_tag;
    using value_type = u32;
    using difference_type = long long;
    using pointer = const u32*;
    using reference = u32;

    u32 first;

    __device__ __forceinline__ u32 operator[](u64 i) const { return first + static_cast<u32>(i); }
    __device__ __forceinline__ u32 operator*() const { return first; }
    __device__ __forceinline__ Rows operator+(u64 i) const { return {(*this)[i]}; }
};

// All of the input is one piece: nothing comes before it.
struct OnePiece {
    __device__ __forceinline__ u32 input_offset() const { return 0; }
    __device__ __forceinline__ bool is_first_partition() const { return true; }
    __device__ __forceinline__ u32 num_previously_selected() const { return 0; }
    __device__ __forceinline__ void update_num_selected(u64* count, u32 selected) const {
        *count = selected;
    }
};

template <int Items, unsigned Delay, unsigned Latency>
using Policy = cub::AgentSelectIfPolicy<384, Items, cub::BLOCK_LOAD_WARP_TRANSPOSE,
                                        cub::LOAD_DEFAULT, cub::BLOCK_SCAN_WARP_SCANS,
                                        cub::detail::fixed_delay_constructor_t<Delay, Latency>>;

constexpr int kThreads = 384;
using Values32 = Policy<17, 76, 1150>;
using Values64 = Policy<11, 380, 1140>;
using Rows32 = Policy<15, 415, 1125>;
using Rows64 = Policy<11, 360, 1170>;

template <typename SelectPolicy, typename Input, typename Flags, typename Output, typename Equal>
__device__ __forceinline__ void select(Input input, Flags flags, Output* output, u64* count,
                                       u64* tiles, u64 rows, u32 tile_count, Equal equal) {
    using Agent =
        cub::detail::select::AgentSelectIf<SelectPolicy, Input, Flags, Output*, cub::NullType,
                                           Equal, u32, OnePiece, cub::SelectImpl::Select>;
    __shared__ typename Agent::TempStorage storage;
    typename Agent::ScanTileStateT state;
    state.d_tile_descriptors = reinterpret_cast<decltype(state.d_tile_descriptors)>(tiles);
    const OnePiece piece;
    Agent(storage, input, flags, output, cub::NullType{}, equal, static_cast<u32>(rows), piece)
        .ConsumeRange(static_cast<int>(tile_count), state, count);
}

}  // namespace

#define XLOG_UNIQUE(WIDTH, BITS)                                                                \
    extern "C" __global__ void __launch_bounds__(kThreads)                                      \
        xlog_unique_##WIDTH(const BITS* values, BITS* heads, u64* count, u64* tiles, u64 rows,  \
                            u32 tile_count) {                                                   \
        cub::NullType* none = nullptr;                                                          \
        select<Values##WIDTH>(values, none, heads, count, tiles, rows, tile_count,              \
                              cuda::std::equal_to<>{});                                         \
    }                                                                                           \
    extern "C" __global__ void __launch_bounds__(kThreads)                                      \
        xlog_unique_rows_##WIDTH(const BITS* values, u32* heads, u64* count, u64* tiles,        \
                                 u64 rows, u32 tile_count) {                                    \
        select<Rows##WIDTH>(Rows{0}, Heads<BITS>{values, 0}, heads, count, tiles, rows,         \
                            tile_count, cub::NullType{});                                       \
    }

XLOG_UNIQUE(32, u32)
XLOG_UNIQUE(64, u64)
