// Sort keys of several columns packed into one word a row: the first field in the highest bits.
//
// Launch shape: one dimension, any grid. Lengths are 64-bit.
// Aliasing: the output must not overlap inputs. A pointer that a field does not use is never read.
//
// A field's description, in 32 bits (`src/ops/encode/mod.rs` repeats it):
//   0..2   width of a value: 0 none, 1 one byte, 2 four bytes, 3 eight bytes
//   2      has validity bits
//   3      values are codes, and the table has their ranks
//   4      missing values come first
//   5..7   0 unsigned, 1 signed, 2 floating point
//   7      the greatest value comes first
//   8      a bit on top of the value's says whether it is missing
//   16..24 bits of the value

namespace {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

// Memory is typed as bytes: one kernel takes columns of every width.
struct Field {
    const u8* values;
    const u8* validity;
    const u8* table;
    u32 description;
};

__device__ __forceinline__ const u32* words(const u8* memory) {
    return reinterpret_cast<const u32*>(memory);
}

// The bits of one field of a row, in sorting order.
__device__ __forceinline__ u64 encoded(const Field& field, u64 row) {
    const u32 description = field.description;
    const u32 bits = description >> 16 & 0xff;
    bool there = true;
    if (description & 1u << 2) {
        there = words(field.validity)[row / 32] >> (row % 32) & 1;
    }
    u64 value = 0;
    if (there) {
        switch (description & 3) {
            case 1:
                value = field.values[row];
                break;
            case 2:
                value = words(field.values)[row];
                break;
            case 3:
                value = reinterpret_cast<const u64*>(field.values)[row];
                break;
            default:
                break;
        }
        if (description & 1u << 3) {
            value = words(field.table)[value];
        }
        const u64 mask = bits == 0 ? 0 : ~0ull >> (64 - bits);
        const u64 sign = bits == 0 ? 0 : 1ull << (bits - 1);
        switch (description >> 5 & 3) {
            case 1:
                value ^= sign;
                break;
            case 2:
                // A set sign inverts all bits, a cleared one only itself.
                value ^= value & sign ? mask : sign;
                break;
            default:
                break;
        }
        if (description & 1u << 7) {
            value ^= mask;
        }
    }
    if (description & 1u << 8) {
        const bool nulls_first = description & 1u << 4;
        value |= static_cast<u64>(there == nulls_first) << bits;
    }
    return value;
}

// Bits of a field with the one on top.
__device__ __forceinline__ u32 width_of(u32 description) {
    return (description >> 16 & 0xff) + (description >> 8 & 1);
}

template <typename Word>
__device__ __forceinline__ void encode(const Field (&fields)[4], u32 field_count, const u8* rows,
                                       u32 by_rows, Word* out, u64 count) {
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const u64 row = by_rows ? words(rows)[i] : i;
        u64 word = 0;
#pragma unroll
        for (u32 f = 0; f < 4; ++f) {
            if (f < field_count) {
                const u32 width = width_of(fields[f].description);
                // A field of 64 bits stands alone.
                word = (width < 64 ? word << width : 0) | encoded(fields[f], row);
            }
        }
        out[i] = static_cast<Word>(word);
    }
}

}  // namespace

#define XLOG_ENCODE(NAME, WORD)                                                                 \
    extern "C" __global__ void NAME(                                                            \
        const u8* values0, const u8* values1, const u8* values2, const u8* values3,             \
        const u8* validity0, const u8* validity1, const u8* validity2, const u8* validity3,     \
        const u8* table0, const u8* table1, const u8* table2, const u8* table3,                 \
        const u8* rows, WORD* out, u64 count, u32 by_rows, u32 field_count, u32 description0,   \
        u32 description1, u32 description2, u32 description3) {                                 \
        const Field fields[4] = {{values0, validity0, table0, description0},                    \
                                 {values1, validity1, table1, description1},                    \
                                 {values2, validity2, table2, description2},                    \
                                 {values3, validity3, table3, description3}};                   \
        encode(fields, field_count, rows, by_rows, out, count);                                 \
    }

// out[i] = the fields of row i, or of row rows[i] if `by_rows` is set.
XLOG_ENCODE(xlog_encode_32, u32)
XLOG_ENCODE(xlog_encode_64, u64)
