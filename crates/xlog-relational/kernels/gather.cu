// Values and validity bits fetched by row number, and columns made from nothing.
//
// Launch shape: one dimension, any grid; blocks of whole warps. Lengths are 64-bit.
// Aliasing: outputs must not overlap inputs.
//
// A row number that is not below the source's length names no row: it gives a zero value and a
// cleared bit. The greatest number there is means null in the result of an outer join.

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

// Values a thread fetches at once: their reads go to places far apart, and wait together.
constexpr int kAtOnce = 4;

template <typename Value, typename Row>
__device__ __forceinline__ void gather(const Value* __restrict__ values,
                                       const Row* __restrict__ rows, Value* __restrict__ out,
                                       u64 length, u64 count) {
    const u64 stride = grid_stride();
    u64 i = first_element();
    for (; i + (kAtOnce - 1) * stride < count; i += kAtOnce * stride) {
        Row row[kAtOnce];
        Value value[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            row[k] = rows[i + k * stride];
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            value[k] = row[k] < length ? values[row[k]] : Value(0);
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            out[i + k * stride] = value[k];
        }
    }
    for (; i < count; i += stride) {
        const Row row = rows[i];
        out[i] = row < length ? values[row] : Value(0);
    }
}

// One warp writes one word. Lanes beyond the count clear their bits.
template <typename Row>
__device__ __forceinline__ void gather_bits(const u32* __restrict__ bits,
                                            const Row* __restrict__ rows, u32* __restrict__ out,
                                            u64 length, u64 count, bool all_set) {
    const u64 words = (count + 31) / 32;
    for (u64 i = first_element(); i / 32 < words; i += grid_stride()) {
        bool set = false;
        if (i < count) {
            const Row row = rows[i];
            set = row < length && (all_set || ((bits[row / 32] >> (row % 32)) & 1u));
        }
        // Every lane of a warp is here or none is: they share a word, and blocks are whole warps.
        const u32 word = __ballot_sync(0xffffffffu, set);
        if (i % 32 == 0) {
            out[i / 32] = word;
        }
    }
}

}  // namespace

// out[i] = values[rows[i]], or zero where there is no such row.
#define XLOG_GATHER(NAME, VALUE, ROW)                                                           \
    extern "C" __global__ void NAME(const VALUE* values, const ROW* rows, VALUE* out,           \
                                    u64 length, u64 count) {                                    \
        gather(values, rows, out, length, count);                                               \
    }

XLOG_GATHER(xlog_gather_8_by_32, u8, u32)
XLOG_GATHER(xlog_gather_8_by_64, u8, u64)
XLOG_GATHER(xlog_gather_32_by_32, u32, u32)
XLOG_GATHER(xlog_gather_32_by_64, u32, u64)
XLOG_GATHER(xlog_gather_64_by_32, u64, u32)
XLOG_GATHER(xlog_gather_64_by_64, u64, u64)

// Bit i of out = bit rows[i] of bits, cleared where there is no such row.
#define XLOG_GATHER_BITS(WIDTH, ROW)                                                            \
    extern "C" __global__ void xlog_gather_bits_by_##WIDTH(                                     \
        const u32* bits, const ROW* rows, u32* out, u64 length, u64 count, u64 words,           \
        u64 out_words) {                                                                        \
        gather_bits(bits, rows, out, length, count, false);                                     \
    }                                                                                           \
    extern "C" __global__ void xlog_rows_valid_##WIDTH(const ROW* rows, u32* out, u64 length,   \
                                                       u64 count, u64 out_words) {              \
        gather_bits<ROW>(nullptr, rows, out, length, count, true);                              \
    }

XLOG_GATHER_BITS(32, u32)
XLOG_GATHER_BITS(64, u64)

// out[i] = first + i
#define XLOG_IOTA(NAME, VALUE)                                                                  \
    extern "C" __global__ void NAME(VALUE* out, VALUE first, u64 count) {                       \
        for (u64 i = first_element(); i < count; i += grid_stride()) {                          \
            out[i] = first + static_cast<VALUE>(i);                                             \
        }                                                                                       \
    }

XLOG_IOTA(xlog_iota_u32, u32)
XLOG_IOTA(xlog_iota_u64, u64)

// out[i] = value
#define XLOG_FILL(NAME, VALUE)                                                                  \
    extern "C" __global__ void NAME(VALUE* out, VALUE value, u64 count) {                       \
        for (u64 i = first_element(); i < count; i += grid_stride()) {                          \
            out[i] = value;                                                                     \
        }                                                                                       \
    }

XLOG_FILL(xlog_fill_8, u8)
XLOG_FILL(xlog_fill_32, u32)
XLOG_FILL(xlog_fill_64, u64)
