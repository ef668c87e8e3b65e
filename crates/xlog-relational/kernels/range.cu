// For which rows a column lies in a range: the predicates that filters are made of most often,
// without an interpreter in between. What bounds it is reading the column.
//
// A value becomes a key, an unsigned number of its width that orders as the values compare; a range
// of values is a range of keys then, whatever their type.
//
// Launch shape: one dimension, any grid, blocks of a multiple of 32 threads. A warp works on 256
// neighbouring rows at a time, eight for each thread: eight loads are on their way at once, and
// eight words are written side by side. Row counts are 64-bit.
// Aliasing: `mask` overlaps no input; `__restrict__` rests on that. `validity` and `before` are read
// only if `flags` say that they are there.

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 kFullWarp = 0xffffffffu;
constexpr int kRows = 8;

// What `flags` may hold: there is a validity; there is a mask whose rows alone are kept.
constexpr u32 kNullable = 1, kLater = 2;

enum Order : u32 { kUnsigned = 0, kSigned = 1, kFloat = 2 };

template <typename T>
struct Float;

template <>
struct Float<u32> {
    static constexpr u32 kInfinity = 0x7f800000u, kNan = 0x7fc00000u;
};

template <>
struct Float<u64> {
    static constexpr u64 kInfinity = 0x7ff0000000000000ull, kNan = 0x7ff8000000000000ull;
};

template <typename T, u32 order>
__device__ __forceinline__ T key_of(T bits) {
    constexpr T kSign = static_cast<T>(1) << (sizeof(T) * 8 - 1);
    if (order == kUnsigned) {
        return bits;
    }
    if (order == kSigned) {
        return bits ^ kSign;
    }
    // One zero and one NaN, which is above every number.
    T size = bits & ~kSign;
    if (size > Float<T>::kInfinity) {
        bits = Float<T>::kNan;
    } else if (size == 0) {
        bits = 0;
    }
    return bits & kSign ? ~bits : bits | kSign;
}

template <typename T, u32 order>
__device__ __forceinline__ void test(const T* __restrict__ values,
                                     const u32* __restrict__ validity,
                                     const u32* __restrict__ before, u32 flags, T low, T span,
                                     bool negated, u64 n, u32* __restrict__ mask) {
    const u32 lane = threadIdx.x % 32;
    const u64 warp = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u64 warps = static_cast<u64>(gridDim.x) * blockDim.x / 32;
    for (u64 base = warp * 32 * kRows; base < n; base += warps * 32 * kRows) {
        T bits[kRows];
        const bool whole = n - base >= 32 * kRows;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            u64 row = base + r * 32 + lane;
            bits[r] = whole || row < n ? values[row] : 0;
        }
        u32 mine = 0;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            u64 row = base + r * 32 + lane;
            bool inside = static_cast<T>(key_of<T, order>(bits[r]) - low) <= span;
            u32 word = __ballot_sync(kFullWarp, (whole || row < n) && inside != negated);
            if (lane == r) {
                mine = word;
            }
        }
        // Thread r has the word of the r-th 32 rows.
        if (lane < kRows && base + lane * 32 < n) {
            u64 index = base / 32 + lane;
            mine &= flags & kNullable ? validity[index] : ~0u;
            mine &= flags & kLater ? before[index] : ~0u;
            mask[index] = mine;
        }
    }
}

template <typename T>
__device__ __forceinline__ void dispatch(const T* values, const unsigned char* validity_bytes,
                                         const unsigned char* before_bytes, u32 flags, u32 order,
                                         T low, T high, bool negated, u64 n, u32* mask) {
    const u32* validity = reinterpret_cast<const u32*>(validity_bytes);
    const u32* before = reinterpret_cast<const u32*>(before_bytes);
    const T span = high - low;
    switch (order) {
        case kUnsigned:
            test<T, kUnsigned>(values, validity, before, flags, low, span, negated, n, mask);
            break;
        case kSigned:
            test<T, kSigned>(values, validity, before, flags, low, span, negated, n, mask);
            break;
        default:
            test<T, kFloat>(values, validity, before, flags, low, span, negated, n, mask);
            break;
    }
}

}  // namespace

// Bit i % 32 of word i / 32 of `mask`: whether values[i] is there and low <= key <= high, or not so
// if `negated` is not 0; and whether the bit is set in `before`. Bits past row n are 0.
extern "C" __global__ void xlog_range_words(const u32* values, const unsigned char* validity,
                                            const unsigned char* before, u32 flags, u32 order,
                                            u32 low, u32 high, u32 negated, u64 n, u32* mask) {
    dispatch<u32>(values, validity, before, flags, order, low, high, negated != 0, n, mask);
}

extern "C" __global__ void xlog_range_longs(const u64* values, const unsigned char* validity,
                                            const unsigned char* before, u32 flags, u32 order,
                                            u64 low, u64 high, u32 negated, u64 n, u32* mask) {
    dispatch<u64>(values, validity, before, flags, order, low, high, negated != 0, n, mask);
}
