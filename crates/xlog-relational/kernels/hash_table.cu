// A table of distinct keys, and the keys that go into it.
//
// Keys are 32-bit words, or 64-bit words with an optional third 32-bit word beside them ("extra"):
// two 32-bit columns and their null bits are one such key, compared exactly.
//
// An entry is 64 bits: a tag above, the position of the key's first row below. The tag of a 32-bit
// key is the key itself, so one read decides; that of a 64-bit key is half of its hash, and the key
// at the entry's position decides. No position is 0xffffffff, so an entry of all ones is empty and
// every key can be stored.
//
// Two 32-bit columns of a group-by, with nulls or without, are keys of their own kind: their table
// holds the 64 bits themselves, so one read decides here too, and the position is kept beside it.
// Nulls need more than 64 bits; those keys have slots of their own behind the others.
//
// Cost per row of an insert: 4 or 8 bytes of key, 4 of slot, one 32-byte sector of the table. A
// table that fits the 50 MB second-level cache runs at the cache's speed, some 100 G sectors/s; one
// in memory at that of random sectors, a tenth of it. Few keys stay in the first-level cache: an
// entry never changes once set, and a stale "empty" is put right by the exchange that follows.
//
// Launch shape: one dimension, blocks of 256 threads, any grid. Pointers of one launch that are
// written do not overlap others.

#include "hash.cuh"

namespace {

constexpr u32 kNoSlot = 0xffffffffu;

// Keys of 32 bits: the tag is the key.
struct Words {
    const u32* keys;
    u32 mask;
    struct Key {
        u32 word;
    };
    __device__ __forceinline__ Key key(u64 at) const { return {keys[at]}; }
    __device__ __forceinline__ u32 hash(Key key) const { return hash_word(key.word) & mask; }
    __device__ __forceinline__ u32 tag(Key key) const { return key.word; }
    __device__ __forceinline__ bool same(Key, u32) const { return true; }
};

// Keys of 64 or 96 bits: the tag is the lower half of the hash.
struct Longs {
    const u64* keys;
    const u32* extra;
    u32 has_extra;
    u32 mask;
    struct Key {
        u64 word;
        u32 extra;
        u64 hashed;
    };
    __device__ __forceinline__ Key key(u64 at) const {
        const u64 word = keys[at];
        const u32 more = has_extra ? extra[at] : 0;
        return {word, more, hash_long(word, more)};
    }
    __device__ __forceinline__ u32 hash(Key key) const {
        return static_cast<u32>(key.hashed >> 32) & mask;
    }
    __device__ __forceinline__ u32 tag(Key key) const { return static_cast<u32>(key.hashed) & mask; }
    __device__ __forceinline__ bool same(Key key, u32 at) const {
        return keys[at] == key.word && (!has_extra || extra[at] == key.extra);
    }
};

// The slot of the key at `at`, inserted if it is not there; kNoSlot when it would lie more than
// `farthest` slots from its place.
template <typename Keys>
__device__ __forceinline__ u32 find_or_insert(const Keys& keys, typename Keys::Key key, u64 at,
                                              u64* table, u64 capacity, u64 farthest) {
    u64 slot = slot_of(keys.hash(key), capacity);
    const u32 tag = keys.tag(key);
    const u64 mine = (static_cast<u64>(tag) << 32) | at;
    for (u64 step = 0; step < farthest; ++step) {
        u64 entry = table[slot];
        if (entry == kEmpty) {
            entry = atomicCAS(&table[slot], kEmpty, mine);
            if (entry == kEmpty) {
                return static_cast<u32>(slot);
            }
        }
        if (static_cast<u32>(entry >> 32) == tag && keys.same(key, static_cast<u32>(entry))) {
            return static_cast<u32>(slot);
        }
        ++slot;
        slot = slot == capacity ? 0 : slot;
    }
    return kNoSlot;
}

template <typename Keys>
__device__ void insert_all(const Keys& keys, const u32* valid, u32 has_valid, const u32* used,
                           u32 has_used, u64* table, u64 capacity, u64 farthest, u32* slots,
                           u32* full, u64 n) {
    const u64 rows = has_used ? used[kUsed] : n;
    for (u64 tile = blockIdx.x; tile * kTile < rows; tile += gridDim.x) {
        // Volatile: another block may have just found the table full.
        if (*static_cast<volatile u32*>(full) != 0) {
            return;
        }
        typename Keys::Key mine[kItems];
        bool there[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            there[k] = at < rows && (!has_valid || bit_of(valid, at));
            mine[k] = keys.key(at < rows ? at : 0);
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            u32 slot = kNoSlot;
            if (there[k]) {
                slot = find_or_insert(keys, mine[k], at, table, capacity, farthest);
                if (slot == kNoSlot) {
                    *full = 1;
                }
            }
            if (at < rows) {
                slots[at] = slot;
            }
        }
    }
}

// A key of two columns, and the slots that it may take.
struct Pair {
    u64 word;
    u64 first_slot;
    u64 slots;
};

// A pair without a null is its own word. One with a null says which it is above its other half, as
// does the one pair that reads as an empty slot: a number below 4 there is no such word, and these
// have the `others` slots behind the first `capacity`.
__device__ __forceinline__ Pair pair_of(u32 first, bool has_first, u32 second, bool has_second,
                                        u64 capacity, u64 others) {
    const u64 word = (static_cast<u64>(second) << 32) | first;
    if (has_first && has_second && word != kEmpty) {
        return {word, 0, capacity};
    }
    const u64 kind = has_first ? (has_second ? 3 : 1) : (has_second ? 0 : 2);
    const u32 half = kind == 0 ? second : kind == 1 ? first : 0;
    return {(kind << 32) | half, capacity, others};
}

// Adds one column to the keys under construction. `lane` says where its words go: 0 and 1 are the
// halves of the 64-bit word, 2 the extra word. With `null_bit` below 32 a null sets that bit of the
// extra word; a null's own bits are zero. `valid` keeps a bit for rows that have no null so far.
template <typename Word>
__device__ void pack(const Word* column, const u32* validity, u32 has_validity, u32 lane,
                     u32 null_bit, u32 first_keys, u32 first_valid, u64* keys, u32* extra,
                     u32 has_extra, u32* valid, u64 n) {
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    // Whole warps go round together: each writes one word of the bitmap.
    const u64 end = (n + 31) / 32 * 32;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += stride) {
        const bool inside = i < n;
        const bool known = inside && (!has_validity || bit_of(validity, i));
        if (inside) {
            const u64 word = known ? static_cast<u64>(column[i]) : 0;
            u64 key = first_keys ? 0 : keys[i];
            u32 more = first_keys || !has_extra ? 0 : extra[i];
            if (lane < 2) {
                key |= word << (32 * lane);
            } else {
                more |= static_cast<u32>(word);
            }
            if (null_bit < 32) {
                more |= static_cast<u32>(!known) << null_bit;
            }
            keys[i] = key;
            if (has_extra) {
                extra[i] = more;
            }
        }
        const u32 bits = __ballot_sync(0xffffffffu, known);
        if ((i & 31) == 0) {
            valid[i >> 5] = first_valid ? bits : valid[i >> 5] & bits;
        }
    }
}

}  // namespace

extern "C" __global__ void xlog_keys_pack_u32(const u32* __restrict__ column,
                                              const u32* __restrict__ validity, u32 has_validity,
                                              u32 lane, u32 null_bit, u32 first_keys,
                                              u32 first_valid, u64* __restrict__ keys,
                                              u32* __restrict__ extra, u32 has_extra,
                                              u32* __restrict__ valid, u64 n) {
    pack(column, validity, has_validity, lane, null_bit, first_keys, first_valid, keys, extra,
         has_extra, valid, n);
}

extern "C" __global__ void xlog_keys_pack_u64(const u64* __restrict__ column,
                                              const u32* __restrict__ validity, u32 has_validity,
                                              u32 lane, u32 null_bit, u32 first_keys,
                                              u32 first_valid, u64* __restrict__ keys,
                                              u32* __restrict__ extra, u32 has_extra,
                                              u32* __restrict__ valid, u64 n) {
    pack(column, validity, has_validity, lane, null_bit, first_keys, first_valid, keys, extra,
         has_extra, valid, n);
}

// Words whose hashes have nothing to do with those of the keys: rows that are split by them still
// fill the whole of a table.
extern "C" __global__ void xlog_keys_mix(const u64* __restrict__ keys, u64* __restrict__ mixed,
                                         u64 n) {
    const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        const u64 key = keys[i];
        mixed[i] = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15ull;
    }
}

// slots[i] = the slot of key i, or kNoSlot for a row without a valid key. *full becomes 1 when a
// key found no place within `farthest` slots; the slots are of no use then.
extern "C" __global__ void __launch_bounds__(256)
    xlog_table_insert_u32(const u32* __restrict__ keys, const u32* __restrict__ valid,
                          u32 has_valid, const u32* __restrict__ used, u32 has_used, u64* table,
                          u64 capacity, u64 farthest, u32 mask, u32* __restrict__ slots, u32* full,
                          u64 n) {
    insert_all(Words{keys, mask}, valid, has_valid, used, has_used, table, capacity, farthest,
               slots, full, n);
}

extern "C" __global__ void __launch_bounds__(256)
    xlog_table_insert_u64(const u64* __restrict__ keys, const u32* __restrict__ extra,
                          u32 has_extra, const u32* __restrict__ valid, u32 has_valid,
                          const u32* __restrict__ used, u32 has_used, u64* table, u64 capacity,
                          u64 farthest, u32 mask, u32* __restrict__ slots, u32* full, u64 n) {
    insert_all(Longs{keys, extra, has_extra, mask}, valid, has_valid, used, has_used, table,
               capacity, farthest, slots, full, n);
}

// The same for keys of two columns, where nulls are values. `table` has `capacity` slots for pairs
// without a null and `others` for the rest; row_of[slot] is a row of the key in a slot that is
// taken.
extern "C" __global__ void __launch_bounds__(256) xlog_table_insert_pairs(
    const u32* __restrict__ first, const u32* __restrict__ first_valid, u32 has_first_valid,
    const u32* __restrict__ second, const u32* __restrict__ second_valid, u32 has_second_valid,
    u64* table, u64 slot_count, u64 capacity, u64 farthest, u32 mask, u32* __restrict__ slots,
    u32* __restrict__ row_of, u32* full, u64 n) {
    for (u64 tile = blockIdx.x; tile * kTile < n; tile += gridDim.x) {
        // Volatile: another block may have just found the table full.
        if (*static_cast<volatile u32*>(full) != 0) {
            return;
        }
        Pair mine[kItems];
        u64 slot[kItems];
        u64 entry[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            const u64 row = at < n ? at : 0;
            mine[k] = pair_of(first[row], !has_first_valid || bit_of(first_valid, row),
                              second[row], !has_second_valid || bit_of(second_valid, row),
                              capacity, slot_count - capacity);
        }
        // The first slots of all rows at once: the waits for them overlap.
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u32 hash = static_cast<u32>(hash_long(mine[k].word, 0) >> 32) & mask;
            slot[k] = slot_of(hash, mine[k].slots);
            entry[k] = table[mine[k].first_slot + slot[k]];
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            if (at >= n) {
                continue;
            }
            const u64 word = mine[k].word;
            u64 found = entry[k];
            u64 place = slot[k];
            bool done = false;
            for (u64 step = 0; step < farthest; ++step) {
                const u64 here = mine[k].first_slot + place;
                if (found == kEmpty) {
                    found = atomicCAS(&table[here], kEmpty, word);
                    if (found == kEmpty) {
                        row_of[here] = static_cast<u32>(at);
                        found = word;
                    }
                }
                if (found == word) {
                    slots[at] = static_cast<u32>(here);
                    done = true;
                    break;
                }
                ++place;
                place = place == mine[k].slots ? 0 : place;
                found = table[mine[k].first_slot + place];
            }
            if (!done) {
                slots[at] = kNoSlot;
                *full = 1;
            }
        }
    }
}
