// Bits of rows: validity that moves from any place to any other, and masks of comparisons.
//
// Launch shape: one dimension, any grid; blocks of whole warps. Lengths and places are 64-bit.
// Aliasing: the output must not overlap the input. A thread owns the words it writes.

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

// Calls `source(offset, bits)` for the part of the range in each word; it answers with that many
// bits, from place `offset` of the range on, in the low ones of a word.
template <typename Source>
__device__ __forceinline__ void place(u32* out, u64 start, u64 count, Source source) {
    const u64 first_word = start / 32, words = (start + count + 31) / 32 - first_word;
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += stride) {
        const u64 word = first_word + i;
        const u64 first = word * 32 > start ? word * 32 : start;
        const u64 end = word * 32 + 32 < start + count ? word * 32 + 32 : start + count;
        const u32 bits = static_cast<u32>(end - first), shift = static_cast<u32>(first % 32);
        const u32 mask = 0xffffffffu >> (32 - bits);
        const u32 value = (source(first - start, bits) & mask) << shift;
        out[word] = (out[word] & ~(mask << shift)) | value;
    }
}

// One warp makes one word: which of 32 values lie in the range, or outside of it. Rows beyond the
// last one have no bit set.
template <bool kAnd, typename Bits>
__device__ __forceinline__ void mark(const Bits* values, u32* out, u64 rows, Bits magnitude,
                                     Bits flip, Bits least, Bits span, u32 outside) {
    const u64 words = (rows + 31) / 32;
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i / 32 < words;
         i += stride) {
        bool set = false;
        if (i < rows) {
            const Bits bits = values[i];
            const Bits sign = Bits(0) - (bits >> (8 * sizeof(Bits) - 1));
            const Bits ordered = bits ^ (sign & magnitude) ^ flip;
            set = (ordered - least <= span) != (outside != 0);
        }
        // Every lane of a warp is here or none is: they share a word, and blocks are whole warps.
        const u32 word = __ballot_sync(0xffffffffu, set);
        if (i % 32 == 0) {
            out[i / 32] = kAnd ? out[i / 32] & word : word;
        }
    }
}

}  // namespace

// Bits start.. of `out` = `count` bits of `in` from `from` on; the bits around them stay.
extern "C" __global__ void xlog_bits_copy(const u32* in, u32* out, u64 in_words, u64 out_words,
                                          u64 from, u64 start, u64 count) {
    place(out, start, count, [=](u64 offset, u32 bits) {
        const u64 at = from + offset;
        const u32 shift = static_cast<u32>(at % 32);
        u32 value = in[at / 32] >> shift;
        if (shift + bits > 32) {
            value |= in[at / 32 + 1] << (32 - shift);
        }
        return value;
    });
}

// Sets `count` bits of `out` from `start` on; the bits around them stay.
extern "C" __global__ void xlog_bits_set(u32* out, u64 out_words, u64 start, u64 count) {
    place(out, start, count, [](u64, u32) { return 0xffffffffu; });
}

// Bit i of `out` = whether value i lies in a range of ordered bits, or outside of it.
#define XLOG_BITS_MARK(NAME, BITS, AND)                                                         \
    extern "C" __global__ void NAME(const BITS* values, u32* out, u64 rows, u64 words,          \
                                    BITS magnitude, BITS flip, BITS least, BITS span,           \
                                    u32 outside) {                                              \
        mark<AND>(values, out, rows, magnitude, flip, least, span, outside);                    \
    }

XLOG_BITS_MARK(xlog_bits_mark_32, u32, false)
XLOG_BITS_MARK(xlog_bits_mark_64, u64, false)
// The same, and the bit was set before.
XLOG_BITS_MARK(xlog_bits_mark_and_32, u32, true)
XLOG_BITS_MARK(xlog_bits_mark_and_64, u64, true)

// Clears the bits of `out` that are not set in `in`.
extern "C" __global__ void xlog_bits_and(const u32* in, u32* out, u64 words) {
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += stride) {
        out[i] &= in[i];
    }
}
