// Prefix sums, and the look-back words that single-pass kernels start from.
//
// Launch shape: one dimension, one block for each tile. Counts are 64-bit throughout.
// Aliasing: outputs must not overlap inputs.

#include <cub/agent/agent_scan.cuh>
#include <cub/agent/single_pass_scan_operators.cuh>

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

// The input, and one zero behind it: the place of the total.
template <typename Value>
struct WithZero {
    using iterator_category = cuda::std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = long long;
    using pointer = const Value*;
    using reference = Value;

    const Value* values;
    u64 rows;
    u64 first;

    __device__ __forceinline__ Value operator[](u64 i) const {
        const u64 row = first + i;
        return row < rows ? values[row] : Value(0);
    }
    __device__ __forceinline__ Value operator*() const { return (*this)[0]; }
    __device__ __forceinline__ WithZero operator+(u64 i) const { return {values, rows, first + i}; }
};

// CUB's tuning for sums of eight bytes at compute capability 9.0. Items are per four bytes.
constexpr int kThreads = 224;
constexpr int kItems = 24;
using Policy =
    cub::AgentScanPolicy<kThreads, kItems, u64, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                         cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS,
                         cub::detail::MemBoundScaling<kThreads, kItems, u64>,
                         cub::detail::fixed_delay_constructor_t<632, 1290>>;

static_assert(Policy::BLOCK_THREADS * Policy::ITEMS_PER_THREAD == 2688,
              "the host side counts on it");

template <typename Value>
__device__ __forceinline__ void exclusive_sum(const Value* values, u64* sums, u64* tiles,
                                              u64 rows) {
    using Agent = cub::detail::scan::AgentScan<Policy, WithZero<Value>, u64*, cuda::std::plus<>,
                                               u64, u64, u64>;
    __shared__ typename Agent::TempStorage storage;
    typename Agent::ScanTileStateT state;
    state.d_tile_descriptors = reinterpret_cast<decltype(state.d_tile_descriptors)>(tiles);
    const WithZero<Value> input{values, rows, 0};
    Agent(storage, input, sums, cuda::std::plus<>{}, u64(0)).ConsumeRange(rows + 1, state, 0);
}

}  // namespace

// Look-back words of `tile_count` tiles, none of which is done: 32 for what lies before the first
// tile, where a look-back ends, and one for each tile. Eight bytes each for counts of 32 bits.
extern "C" __global__ void xlog_tiles_init_32(u64* tiles, u64 words, u32 tile_count) {
    cub::ScanTileState<u32> state;
    state.d_tile_descriptors = reinterpret_cast<uint2*>(tiles);
    state.InitializeStatus(static_cast<int>(tile_count));
}

// The same for counts of 64 bits, sixteen bytes each.
extern "C" __global__ void xlog_tiles_init_64(u64* tiles, u64 words, u32 tile_count) {
    cub::ScanTileState<u64> state;
    state.d_tile_descriptors = reinterpret_cast<ulonglong2*>(tiles);
    state.InitializeStatus(static_cast<int>(tile_count));
}

// sums[i] = the sum of values[0] to values[i - 1], for i from 0 to `rows`: the last is the total.
extern "C" __global__ void __launch_bounds__(kThreads)
    xlog_exclusive_sum_u32(const u32* values, u64* sums, u64* tiles, u64 rows, u64 places) {
    exclusive_sum(values, sums, tiles, rows);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    xlog_exclusive_sum_u64(const u64* values, u64* sums, u64* tiles, u64 rows, u64 places) {
    exclusive_sum(values, sums, tiles, rows);
}
