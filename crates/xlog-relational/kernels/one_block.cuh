// Tables of distinct keys in the shared memory of one block, for inputs so small that the launches
// of a whole grid would take longer than the work. Needs hash.cuh before it.
//
// An entry is 32 bits: 19 of the key's hash above, the first row of the key below; the key at that
// row decides. The top bit of an entry is clear, so one of all ones is free. Entries are changed by
// atomics alone until a barrier: which thread comes first is of no matter to what is left.

namespace {

constexpr u32 kBlock = 512;
constexpr u32 kFree = 0xffffffffu;
constexpr u32 kRowBits = 12;
constexpr u32 kRowMask = (1u << kRowBits) - 1;
constexpr u32 kTagMask = (1u << (31 - kRowBits)) - 1;

// Keys of 32 bits.
struct BlockWords {
    const u32* keys;
    u32 mask;
    struct Key {
        u32 word;
        u32 hash;
        u32 tag;
    };
    __device__ __forceinline__ Key key(u32 at) const {
        const u32 word = keys[at];
        const u32 hash = hash_word(word) & mask;
        return {word, hash, hash & kTagMask};
    }
    __device__ __forceinline__ bool same(const Key& key, u32 at) const {
        return keys[at] == key.word;
    }
};

// Keys of 64 or 96 bits.
struct BlockLongs {
    const u64* keys;
    const u32* extra;
    u32 has_extra;
    u32 mask;
    struct Key {
        u64 word;
        u32 extra;
        u32 hash;
        u32 tag;
    };
    __device__ __forceinline__ Key key(u32 at) const {
        const u64 word = keys[at];
        const u32 more = has_extra ? extra[at] : 0;
        const u64 hash = hash_long(word, more);
        return {word, more, static_cast<u32>(hash >> 32) & mask,
                static_cast<u32>(hash) & mask & kTagMask};
    }
    __device__ __forceinline__ bool same(const Key& key, u32 at) const {
        return keys[at] == key.word && (!has_extra || extra[at] == key.extra);
    }
};

// Empties a table. A barrier must follow before it is used.
template <u32 kSlots>
__device__ __forceinline__ void clear(u32 (&entries)[kSlots]) {
    for (u32 i = threadIdx.x; i < kSlots; i += kBlock) {
        entries[i] = kFree;
    }
}

// The slot of the key of row `at`, which takes a free one if it is new. There are fewer rows than
// slots. The first row of the key is known after the next barrier: first_row.
template <u32 kSlots, typename Keys>
__device__ __forceinline__ u32 find_or_insert(u32 (&entries)[kSlots], const Keys& keys,
                                              const typename Keys::Key& key, u32 at) {
    const u32 mine = (key.tag << kRowBits) | at;
    u32 slot = static_cast<u32>(slot_of(key.hash, kSlots));
    for (;;) {
        const u32 entry = atomicCAS(&entries[slot], kFree, mine);
        if (entry == kFree) {
            return slot;
        }
        if (entry >> kRowBits == key.tag && keys.same(key, entry & kRowMask)) {
            if (mine < entry) {
                atomicMin(&entries[slot], mine);
            }
            return slot;
        }
        slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
}

template <u32 kSlots>
__device__ __forceinline__ u32 first_row(const u32 (&entries)[kSlots], u32 slot) {
    return entries[slot] & kRowMask;
}

// The first row of a key in a table that nobody changes any more, or `otherwise`.
template <u32 kSlots, typename Keys>
__device__ __forceinline__ u32 find(const u32 (&entries)[kSlots], const Keys& keys,
                                    const typename Keys::Key& key, u32 otherwise) {
    u32 slot = static_cast<u32>(slot_of(key.hash, kSlots));
    for (;;) {
        const u32 entry = entries[slot];
        if (entry == kFree) {
            return otherwise;
        }
        if (entry >> kRowBits == key.tag && keys.same(key, entry & kRowMask)) {
            return entry & kRowMask;
        }
        slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
}

// How many rows, one after the other, each thread takes of `rows`.
__device__ __forceinline__ u32 rows_each(u32 rows) {
    return (rows + kBlock - 1) / kBlock;
}

}  // namespace
