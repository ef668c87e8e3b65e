// What the words of aggregates become on the way to columns.
//
// Launch shape: one dimension, blocks of whole warps, any grid. Lengths are 64-bit.
// Aliasing: outputs must not overlap inputs.

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

// What a sum is a sum of. The numbers are those of the Rust side.
enum Sum : u32 {
    kUnsigned = 0,
    kSigned = 1,
    kUnsignedWide = 2,
    kSignedWide = 3,
    kFloat = 4,
};

// The nearest double of a 128-bit number without a sign: its highest 64 bits, in whose last one
// stands whether anything was left behind them, round as the whole number does.
__device__ __forceinline__ double to_double(u64 low, u64 high) {
    if (high == 0) {
        return static_cast<double>(low);
    }
    const int shift = __clzll(static_cast<long long>(high));
    u64 top = high;
    u64 rest = low;
    if (shift > 0) {
        top = (high << shift) | (low >> (64 - shift));
        rest = low << shift;
    }
    top |= rest != 0 ? 1 : 0;
    return scalbn(static_cast<double>(top), 64 - shift);
}

__device__ __forceinline__ double sum_of(u64 low, u64 high, u32 kind) {
    switch (kind) {
        case kUnsigned:
            return static_cast<double>(low);
        case kSigned:
            return static_cast<double>(static_cast<long long>(low));
        case kUnsignedWide:
            return to_double(low, high);
        case kSignedWide: {
            if ((high >> 63) == 0) {
                return to_double(low, high);
            }
            const u64 magnitude = ~low + 1;
            return -to_double(magnitude, ~high + (magnitude == 0 ? 1 : 0));
        }
        default:
            return __longlong_as_double(static_cast<long long>(low));
    }
}

template <typename Value>
__device__ __forceinline__ void narrow(const u64* __restrict__ words, Value* __restrict__ values,
                                       u64 n) {
    for (u64 i = first_element(); i < n; i += grid_stride()) {
        values[i] = static_cast<Value>(words[i]);
    }
}

}  // namespace

extern "C" __global__ void xlog_figure_narrow_8(const u64* __restrict__ words,
                                                u8* __restrict__ values, u64 n) {
    narrow(words, values, n);
}

extern "C" __global__ void xlog_figure_narrow_32(const u64* __restrict__ words,
                                                 u32* __restrict__ values, u64 n) {
    narrow(words, values, n);
}

// Bit g of the result: whether count g is not zero. One warp writes one word; bits behind the last
// count are cleared.
extern "C" __global__ void xlog_figure_counted(const u64* __restrict__ counts,
                                               u32* __restrict__ bits, u64 n, u64 words) {
    for (u64 i = first_element(); i / 32 < words; i += grid_stride()) {
        const u32 word = __ballot_sync(0xffffffffu, i < n && counts[i] != 0);
        if (i % 32 == 0) {
            bits[i / 32] = word;
        }
    }
}

// Sums divided by counts. Where a count is zero the mean has no meaning.
extern "C" __global__ void xlog_figure_mean(const u64* __restrict__ low,
                                            const u64* __restrict__ high,
                                            const u64* __restrict__ counts, u64* __restrict__ means,
                                            u32 kind, u64 n) {
    const bool wide = kind == kUnsignedWide || kind == kSignedWide;
    for (u64 i = first_element(); i < n; i += grid_stride()) {
        const double sum = sum_of(low[i], wide ? high[i] : 0, kind);
        const double mean = sum / static_cast<double>(counts[i]);
        means[i] = static_cast<u64>(__double_as_longlong(mean));
    }
}

// *overflow becomes 1 if a sum of 128 bits does not fit 64.
extern "C" __global__ void xlog_figure_overflow(const u64* __restrict__ low,
                                                const u64* __restrict__ high, u32* overflow,
                                                u32 is_signed, u64 n) {
    for (u64 i = first_element(); i < n; i += grid_stride()) {
        const u64 fitting = is_signed && (low[i] >> 63) ? ~0ull : 0;
        if (high[i] != fitting) {
            atomicOr(overflow, 1u);
        }
    }
}
