// Least-significant-digit radix sort: CUB's one-sweep agents under fixed policies.
//
// Each kind of key and value is a module of its own, so that a sort translates only what it
// launches.
//
// Launch shape: one dimension; the block sizes and tiles below are part of the contract with the
// host side, which knows them too. Counts are 64-bit at the boundary and below 2^32 inside; a sweep
// takes less than 2^30 keys at a time, because its look-back words keep two bits for themselves.
// Aliasing: outputs must not overlap inputs.
//
// Keys are sorted as unsigned bits. Signed and floating-point keys, and descending order, are a
// change of bits on the way in and back on the way out (`Order`): the first sweep of a sort makes
// the one and its last the other, so that the sweeps between them need neither.

#pragma once

#include <cub/agent/agent_radix_sort_histogram.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

// A change of bits that keeps the order of a type under the unsigned order of what it gives.
//
// `magnitude` is all bits but the sign for floats, and zero otherwise; `flip` inverts the sign bit
// of what has one, and every bit for descending order. The sign survives the first step, so the
// second function takes back what the first one did.
template <typename Bits>
struct Order {
    Bits magnitude;
    Bits flip;

    static __device__ __forceinline__ Bits spread_sign(Bits bits) {
        constexpr int last = 8 * sizeof(Bits) - 1;
        return Bits(0) - (bits >> last);
    }
    __device__ __forceinline__ Bits in(Bits bits) const {
        return bits ^ (spread_sign(bits) & magnitude) ^ flip;
    }
    __device__ __forceinline__ Bits out(Bits bits) const {
        const Bits flipped = bits ^ flip;
        return flipped ^ (spread_sign(flipped) & magnitude);
    }
};

// What a sweep does to keys as it reads and as it writes them.
template <typename Bits>
struct Orders {
    Order<Bits> first;
    Order<Bits> last;
};

// The key type that carries `Orders` through CUB's agents.
template <typename Bits>
struct Ordered {
    Bits bits;
};

}  // namespace

CUB_NAMESPACE_BEGIN

template <typename Bits>
struct RadixSortTwiddle<false, Ordered<Bits>> {
    static __device__ __forceinline__ Bits In(Bits key, Orders<Bits> orders) {
        return orders.first.in(key);
    }
    static __device__ __forceinline__ Bits Out(Bits key, Orders<Bits> orders) {
        return orders.last.out(key);
    }
    // Padding of a tile: what reads as the greatest key.
    static __device__ __forceinline__ Bits DefaultKey(Orders<Bits> orders) {
        return orders.first.out(~Bits(0));
    }
};

namespace detail::radix {

template <typename Bits>
struct traits_t<Ordered<Bits>, false> {
    using bit_ordered_type = Bits;
    using bit_ordered_conversion_policy = bit_ordered_conversion_policy_t<Bits>;
    using bit_ordered_inversion_policy = bit_ordered_inversion_policy_t<Bits>;

    template <class, class>
    using digit_extractor_t = ShiftDigitExtractor<Bits>;

    template <class>
    static __device__ __forceinline__ ShiftDigitExtractor<Bits> digit_extractor(int first, int bits,
                                                                                Orders<Bits>) {
        return ShiftDigitExtractor<Bits>(first, bits);
    }
};

}  // namespace detail::radix

CUB_NAMESPACE_END

namespace {

// Digits of all keys, counted for every sweep at once.
constexpr int kHistogramThreads = 128;
using HistogramPolicy = cub::AgentRadixSortHistogramPolicy<kHistogramThreads, 16, 1, u32, 8>;

template <typename Bits>
__device__ __forceinline__ void histogram(const Bits* keys, u32* bins, u64 count, u32 begin,
                                          u32 end, Order<Bits> order) {
    using Key = Ordered<Bits>;
    using Agent = cub::detail::radix_sort::AgentRadixSortHistogram<HistogramPolicy, false, Key, u32,
                                                                   Orders<Bits>>;
    __shared__ typename Agent::TempStorage storage;
    const Orders<Bits> orders{order, {}};
    Agent agent(storage, bins, reinterpret_cast<const Key*>(keys), static_cast<u32>(count),
                static_cast<int>(begin), static_cast<int>(end), orders);
    agent.Process();
}

// The tunings that CUB has for compute capability 9.0, but for keys of four bytes alone: there 512
// threads with 19 keys each move 48 keys a nanosecond on an H200, and CUB's 384 with 20 move 43.
// Items are per four bytes of the wider of key and value; the policy halves them where that has
// eight.
template <typename Bits, typename Value>
struct Sweep {
    static constexpr bool keys_only = sizeof(Value) == 1;
    using Wider = cuda::std::conditional_t<(sizeof(Value) > sizeof(Bits)), Value, Bits>;
    static constexpr int items = sizeof(Bits) == 4 ? (keys_only ? 19 : sizeof(Value) == 4 ? 23 : 30)
                                                   : (sizeof(Value) < 8 ? 30 : 24);
    using Policy =
        cub::AgentRadixSortOnesweepPolicy<sizeof(Bits) == 4 && keys_only ? 512 : 384, items, Wider, 1,
                                          cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
                                          cub::BLOCK_SCAN_RAKING_MEMOIZE,
                                          cub::RADIX_SORT_STORE_DIRECT, kDigitBits>;
    static constexpr int threads = Policy::BLOCK_THREADS;
    static constexpr int tile = Policy::BLOCK_THREADS * Policy::ITEMS_PER_THREAD;
};

static_assert(Sweep<u32, cub::NullType>::tile == 9728, "the host side counts on it");
static_assert(Sweep<u32, u32>::tile == 8832, "the host side counts on it");
static_assert(Sweep<u32, u64>::tile == 5760, "the host side counts on it");
static_assert(Sweep<u64, cub::NullType>::tile == 5760, "the host side counts on it");
static_assert(Sweep<u64, u32>::tile == 5760, "the host side counts on it");
static_assert(Sweep<u64, u64>::tile == 4608, "the host side counts on it");

// One digit: every key goes to its place among the keys of its tile, of earlier tiles and of
// smaller digits. `Key` is `Bits`, or `Ordered<Bits>` where keys change their bits on the way.
template <typename Key, typename Bits, typename Value, typename Changes>
__device__ __forceinline__ void sweep(u32* look_back, u32* counter, const u32* bins, u32* bins_left,
                                      const Bits* keys_in, Bits* keys_out, const Value* values_in,
                                      Value* values_out, u64 count, u32 shift, u32 bits,
                                      Changes changes) {
    using Agent =
        cub::detail::radix_sort::AgentRadixSortOnesweep<typename Sweep<Bits, Value>::Policy, false,
                                                        Key, Value, u32, int, Changes>;
    __shared__ typename Agent::TempStorage storage;
    Agent agent(storage, reinterpret_cast<int*>(look_back), reinterpret_cast<int*>(counter),
                bins_left, bins, reinterpret_cast<Key*>(keys_out),
                reinterpret_cast<const Key*>(keys_in), values_out, values_in,
                static_cast<int>(count), static_cast<int>(shift), static_cast<int>(bits), changes);
    agent.Process();
}

// A sort in one block, for inputs that are not worth a grid.
constexpr int kTileThreads = 256;
constexpr int kTileItems = 8;

template <typename Bits, typename Value>
__device__ __forceinline__ void sort_tile(const Bits* keys_in, Bits* keys_out,
                                          const Value* values_in, Value* values_out, u64 count,
                                          u32 begin, u32 end, Order<Bits> order) {
    constexpr bool keys_only = cuda::std::is_same_v<Value, cub::NullType>;
    using Sort = cub::BlockRadixSort<Bits, kTileThreads, kTileItems, Value, 6>;
    __shared__ typename Sort::TempStorage storage;

    const int valid = static_cast<int>(count);
    Bits keys[kTileItems];
    Value values[kTileItems];
    cub::LoadDirectBlocked(threadIdx.x, keys_in, keys, valid, order.out(~Bits(0)));
#pragma unroll
    for (int item = 0; item < kTileItems; ++item) {
        keys[item] = order.in(keys[item]);
    }
    // Padding is the greatest key there is and stands behind the others, so it stays behind them.
    if constexpr (keys_only) {
        Sort(storage).SortBlockedToStriped(keys, static_cast<int>(begin), static_cast<int>(end));
    } else {
        cub::LoadDirectBlocked(threadIdx.x, values_in, values, valid);
        Sort(storage).SortBlockedToStriped(keys, values, static_cast<int>(begin),
                                           static_cast<int>(end));
    }
#pragma unroll
    for (int item = 0; item < kTileItems; ++item) {
        keys[item] = order.out(keys[item]);
    }
    cub::StoreDirectStriped<kTileThreads>(threadIdx.x, keys_out, keys, valid);
    if constexpr (!keys_only) {
        cub::StoreDirectStriped<kTileThreads>(threadIdx.x, values_out, values, valid);
    }
}

}  // namespace

// bins[sweep][digit] += how many of the keys have that digit; the caller zeroes them.
#define XLOG_HISTOGRAM(NAME, BITS)                                                            \
    extern "C" __global__ void __launch_bounds__(kHistogramThreads)                           \
        NAME(const BITS* keys, u32* bins, u64 count, u32 begin, u32 end, BITS magnitude,      \
             BITS flip) {                                                                     \
        histogram<BITS>(keys, bins, count, begin, end, {magnitude, flip});                    \
    }


#define XLOG_SORT_KEYS(WIDTH, BITS)                                                           \
    extern "C" __global__ void __launch_bounds__(Sweep<BITS, cub::NullType>::threads)         \
        xlog_radix_sweep_##WIDTH(u32* look_back, u32* counter, const u32* bins,               \
                                 u32* bins_left, const BITS* keys_in, BITS* keys_out,         \
                                 u64 count, u64 rows, u32 shift, u32 bits) {                  \
        cub::NullType* none = nullptr;                                                        \
        sweep<BITS>(look_back, counter, bins, bins_left, keys_in, keys_out, none, none,       \
                    count, shift, bits, cub::detail::identity_decomposer_t{});                \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(Sweep<BITS, cub::NullType>::threads)         \
        xlog_radix_sweep_ordered_##WIDTH(u32* look_back, u32* counter, const u32* bins,       \
                                         u32* bins_left, const BITS* keys_in, BITS* keys_out, \
                                         u64 count, u64 rows, u32 shift, u32 bits,            \
                                         BITS magnitude_in, BITS flip_in, BITS magnitude_out, \
                                         BITS flip_out) {                                     \
        cub::NullType* none = nullptr;                                                        \
        const Orders<BITS> orders{{magnitude_in, flip_in}, {magnitude_out, flip_out}};        \
        sweep<Ordered<BITS>>(look_back, counter, bins, bins_left, keys_in, keys_out, none,    \
                             none, count, shift, bits, orders);                               \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(kTileThreads)                                \
        xlog_radix_tile_##WIDTH(const BITS* keys_in, BITS* keys_out, u64 count, u32 begin,    \
                                u32 end, BITS magnitude, BITS flip) {                         \
        cub::NullType* none = nullptr;                                                        \
        sort_tile<BITS>(keys_in, keys_out, none, none, count, begin, end,                     \
                        {magnitude, flip});                                                   \
    }

#define XLOG_SORT_PAIRS(WIDTH, BITS, VALUE_WIDTH, VALUE)                                      \
    extern "C" __global__ void __launch_bounds__(Sweep<BITS, VALUE>::threads)                 \
        xlog_radix_sweep_##WIDTH##_##VALUE_WIDTH(                                             \
            u32* look_back, u32* counter, const u32* bins, u32* bins_left,                    \
            const BITS* keys_in, BITS* keys_out, const VALUE* values_in, VALUE* values_out,   \
            u64 count, u64 rows, u32 shift, u32 bits) {                                       \
        sweep<BITS>(look_back, counter, bins, bins_left, keys_in, keys_out, values_in,        \
                    values_out, count, shift, bits, cub::detail::identity_decomposer_t{});    \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(Sweep<BITS, VALUE>::threads)                 \
        xlog_radix_sweep_ordered_##WIDTH##_##VALUE_WIDTH(                                     \
            u32* look_back, u32* counter, const u32* bins, u32* bins_left,                    \
            const BITS* keys_in, BITS* keys_out, const VALUE* values_in, VALUE* values_out,   \
            u64 count, u64 rows, u32 shift, u32 bits, BITS magnitude_in, BITS flip_in,        \
            BITS magnitude_out, BITS flip_out) {                                              \
        const Orders<BITS> orders{{magnitude_in, flip_in}, {magnitude_out, flip_out}};        \
        sweep<Ordered<BITS>>(look_back, counter, bins, bins_left, keys_in, keys_out,          \
                             values_in, values_out, count, shift, bits, orders);              \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(kTileThreads)                                \
        xlog_radix_tile_##WIDTH##_##VALUE_WIDTH(                                              \
            const BITS* keys_in, BITS* keys_out, const VALUE* values_in, VALUE* values_out,   \
            u64 count, u32 begin, u32 end, BITS magnitude, BITS flip) {                       \
        sort_tile<BITS>(keys_in, keys_out, values_in, values_out, count, begin, end,          \
                        {magnitude, flip});                                                   \
    }
