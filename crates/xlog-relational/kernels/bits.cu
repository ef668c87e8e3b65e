// Ranges of bits, copied from any place to any other: validity of columns that become one.
//
// Launch shape: one dimension, any grid. Lengths and places are 64-bit.
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
