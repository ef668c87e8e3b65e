// Columns as words that are equal where the keys are.
//
// Integers, dates, timestamps and codes of text are such words already. Floats are not: zeros of
// either sign are one key, and so are all NaN. Truth values are bytes, and become words.
//
// Launch shape: one dimension, any grid. Lengths are 64-bit.
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

// One zero, and one NaN: by bits, so that no mode of the floating-point unit has a say.
template <typename Word>
__device__ __forceinline__ Word normalise(Word bits, Word infinity, Word nan) {
    const Word magnitude = bits & (~Word(0) >> 1);
    return magnitude > infinity ? nan : magnitude == 0 ? Word(0) : bits;
}

}  // namespace

extern "C" __global__ void xlog_key_float_32(const u32* __restrict__ values,
                                             u32* __restrict__ words, u64 n) {
    for (u64 i = first_element(); i < n; i += grid_stride()) {
        words[i] = normalise<u32>(values[i], 0x7f800000u, 0x7fc00000u);
    }
}

extern "C" __global__ void xlog_key_float_64(const u64* __restrict__ values,
                                             u64* __restrict__ words, u64 n) {
    for (u64 i = first_element(); i < n; i += grid_stride()) {
        words[i] = normalise<u64>(values[i], 0x7ff0000000000000ull, 0x7ff8000000000000ull);
    }
}

extern "C" __global__ void xlog_key_bool(const u8* __restrict__ values, u32* __restrict__ words,
                                         u64 n) {
    for (u64 i = first_element(); i < n; i += grid_stride()) {
        words[i] = values[i];
    }
}
