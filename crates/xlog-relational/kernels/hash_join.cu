// Joins by hash: a short way for build keys that do not repeat, a long way for any.
//
// The short way puts each build row into a table of 64-bit entries and lets each probe row look up
// its partner and write its output at once. It stops when it sees a key a second time.
// The long way numbers the distinct keys (xlog_table_insert), lists the build rows of each key one
// after the other, counts the output of each probe row, and then gives every output row to one
// thread, whichever probe row it comes from: a key with a million partners is spread over a million
// threads.
//
// Sides larger than the cache are first split into 256 parts by the top of their hash. The table is
// addressed by the same bits, so rows of one part touch 1/256 of it, and what would be a random
// sector of memory (64 bytes moved, and an activated row) is one of the second-level cache.
//
// Cost of the short way for 10 M x 10 M rows of 4-byte keys and payloads, in bytes: counting parts
// 2 x 40 MB, splitting 2 x 160 MB, the table filled, written and read 160 + 160 + 160 MB, building
// 80, probing 80 and 120 of output: 1.2 GB, 0.3 ms at 4.2 TB/s. The splits and the exchanges in the
// cache run well below that rate; 1 ms in all is what they should leave.
//
// Launch shape: one dimension, blocks of 256 threads, any grid (xlog_join_scan: one block).

#include "hash.cuh"
#include "join.cuh"

namespace {

constexpr u32 kWarps = kThreads / 32;
constexpr u32 kFullWarp = 0xffffffffu;

__device__ __forceinline__ u64 slot_after(u64 slot, u64 capacity) {
    return slot + 1 == capacity ? 0 : slot + 1;
}

struct Words {
    const u32* keys;
    u32 mask;
    struct Key {
        u32 word;
    };
    __device__ __forceinline__ Key key(u64 at) const { return {keys[at]}; }
    __device__ __forceinline__ u32 hash(Key key) const { return hash_word(key.word) & mask; }
    __device__ __forceinline__ u32 tag(Key key) const { return key.word; }
};

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
};

// Whether a key and that of a build row, whose tags are equal, are equal.
__device__ __forceinline__ bool same(const Words&, Words::Key, u32) {
    return true;
}
__device__ __forceinline__ bool same(const Longs& build, Longs::Key key, u32 at) {
    return build.keys[at] == key.word && (!build.has_extra || build.extra[at] == key.extra);
}

// A side's rows: how many there are, which have a key, what stands for them in the output.
struct Rows {
    const u32* values;
    u32 has_values;
    const u32* valid;
    u32 has_valid;
    const u32* used;
    u32 has_used;
    u64 n;
    __device__ __forceinline__ u64 count() const { return has_used ? used[kUsed] : n; }
    __device__ __forceinline__ bool has_key(u64 at) const { return !has_valid || bit_of(valid, at); }
    __device__ __forceinline__ u32 value(u64 at) const {
        return has_values ? values[at] : static_cast<u32>(at);
    }
};

// Places for the items that are taken, in the order of warps, items and lanes: those of one item of
// one warp lie side by side. One addition to `cursor` for the block.
__device__ __forceinline__ void places(const bool (&taken)[kItems], u64* cursor,
                                       u64 (&place)[kItems]) {
    __shared__ u32 warp_start[kWarps];
    __shared__ u64 block_start;
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x / 32;
    u32 votes[kItems];
    u32 total = 0;
#pragma unroll
    for (u32 k = 0; k < kItems; ++k) {
        votes[k] = __ballot_sync(kFullWarp, taken[k]);
        total += __popc(votes[k]);
    }
    if (lane == 0) {
        warp_start[warp] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 sum = 0;
        for (u32 w = 0; w < kWarps; ++w) {
            const u32 count = warp_start[w];
            warp_start[w] = sum;
            sum += count;
        }
        block_start = sum == 0 ? 0 : atomicAdd(cursor, static_cast<u64>(sum));
    }
    __syncthreads();
    u64 next = block_start + warp_start[warp];
#pragma unroll
    for (u32 k = 0; k < kItems; ++k) {
        place[k] = next + __popc(votes[k] & ((1u << lane) - 1u));
        next += __popc(votes[k]);
    }
    // The next call writes what this one reads.
    __syncthreads();
}

// The exclusive sum of a value over the block, for 256 threads; the total is given to all.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* total) {
    __shared__ T warp_sum[kWarps];
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x / 32;
    T inclusive = value;
    for (u32 offset = 1; offset < 32; offset *= 2) {
        const T other = __shfl_up_sync(kFullWarp, inclusive, offset);
        inclusive += lane >= offset ? other : 0;
    }
    if (lane == 31) {
        warp_sum[warp] = inclusive;
    }
    __syncthreads();
    T before = 0;
    T all = 0;
    for (u32 w = 0; w < kWarps; ++w) {
        before += w < warp ? warp_sum[w] : 0;
        all += warp_sum[w];
    }
    __syncthreads();
    *total = all;
    return before + inclusive - value;
}

template <typename Keys>
__device__ void histogram(const Keys& keys, const u32* valid, u32 has_valid, u32* counts, u64 n) {
    __shared__ u32 own[kParts];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (u64 tile = blockIdx.x; tile * kTile < n; tile += gridDim.x) {
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            if (at < n && (!has_valid || bit_of(valid, at))) {
                atomicAdd(&own[keys.hash(keys.key(at)) >> 24], 1u);
            }
        }
    }
    __syncthreads();
    const u32 mine = own[threadIdx.x];
    if (mine != 0) {
        atomicAdd(&counts[threadIdx.x], mine);
    }
    // One addition for the block: all blocks meet at this address.
    u32 total;
    block_sum(mine, &total);
    if (threadIdx.x == 0 && total != 0) {
        atomicAdd(&counts[kUsed], total);
    }
}

// Sorts a tile by part in shared memory, so that what goes to one part is written side by side.
template <typename Keys, typename Word, u32 kPerThread>
__device__ void scatter(const Keys& keys, const Rows& rows, const u32* counts, u32* cursors,
                        Word* out_keys, u32* out_values) {
    constexpr u32 kSplit = kThreads * kPerThread;
    __shared__ Word tile_keys[kSplit];
    __shared__ u32 tile_values[kSplit];
    __shared__ u32 own[kParts];
    __shared__ u32 to[kParts];
    u32 total;
    const u32 part_start = block_sum(counts[threadIdx.x], &total);
    for (u64 tile = blockIdx.x; tile * kSplit < rows.n; tile += gridDim.x) {
        own[threadIdx.x] = 0;
        __syncthreads();
        Word word[kPerThread];
        // The part above, the rank within the tile's rows of that part below.
        u32 part_rank[kPerThread];
#pragma unroll
        for (u32 k = 0; k < kPerThread; ++k) {
            const u64 at = tile * kSplit + k * kThreads + threadIdx.x;
            part_rank[k] = kNone;
            if (at < rows.n && rows.has_key(at)) {
                const typename Keys::Key key = keys.key(at);
                word[k] = key.word;
                part_rank[k] = keys.hash(key) >> 24 << 16;
            }
        }
#pragma unroll
        for (u32 k = 0; k < kPerThread; ++k) {
            if (part_rank[k] != kNone) {
                part_rank[k] |= atomicAdd(&own[part_rank[k] >> 16], 1u);
            }
        }
        __syncthreads();
        const u32 mine = own[threadIdx.x];
        const u32 start = block_sum(mine, &total);
        const u32 reserved = mine == 0 ? 0 : atomicAdd(&cursors[threadIdx.x], mine);
        own[threadIdx.x] = start;
        // Where item i of the tile goes if it is of this part: to[part] + i, wrapping.
        to[threadIdx.x] = part_start + reserved - start;
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < kPerThread; ++k) {
            if (part_rank[k] != kNone) {
                const u32 place = own[part_rank[k] >> 16] + (part_rank[k] & 0xffffu);
                tile_keys[place] = word[k];
                tile_values[place] = rows.value(tile * kSplit + k * kThreads + threadIdx.x);
            }
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < total; i += kThreads) {
            const Word key = tile_keys[i];
            const u32 p = keys.hash(Keys::of(key)) >> 24;
            out_keys[to[p] + i] = key;
            out_values[to[p] + i] = tile_values[i];
        }
        __syncthreads();
    }
}

// Keys::of for the scatter, whose keys have no extra word.
struct PartWords : Words {
    static __device__ __forceinline__ Key of(u32 word) { return {word}; }
};
struct PartLongs : Longs {
    static __device__ __forceinline__ Key of(u64 word) { return {word, 0, hash_long(word, 0)}; }
};

// Puts (tag, low half) into the table. False if the key is there already.
template <typename Keys>
__device__ __forceinline__ bool insert_once(const Keys& keys, typename Keys::Key key, u32 low,
                                            u64* table, u64 capacity, bool peek) {
    u64 slot = slot_of(keys.hash(key), capacity);
    const u32 tag = keys.tag(key);
    const u64 mine = (static_cast<u64>(tag) << 32) | low;
    for (;;) {
        u64 entry = peek ? table[slot] : kEmpty;
        if (entry == kEmpty) {
            entry = atomicCAS(&table[slot], kEmpty, mine);
            if (entry == kEmpty) {
                return true;
            }
        }
        if (static_cast<u32>(entry >> 32) == tag && same(keys, key, static_cast<u32>(entry))) {
            return false;
        }
        slot = slot_after(slot, capacity);
    }
}

// The entry of a key, or kEmpty, and its slot.
template <typename Keys>
__device__ __forceinline__ u64 find(const Keys& build, const Keys& probe,
                                    typename Keys::Key key, const u64* __restrict__ table,
                                    u64 capacity, u64 entry, u64& slot) {
    const u32 tag = probe.tag(key);
    while (entry != kEmpty) {
        if (static_cast<u32>(entry >> 32) == tag && same(build, key, static_cast<u32>(entry))) {
            return entry;
        }
        slot = slot_after(slot, capacity);
        entry = __ldg(&table[slot]);
    }
    return kEmpty;
}

// For existence alone a repeated key is no matter; for anything else it ends the short way.
__device__ __forceinline__ bool may_repeat(u32 kind) {
    return kind == kSemi || kind == kAnti;
}

template <typename Keys>
__device__ void match(const Keys& build, const Keys& probe, const Rows& rows,
                      const u64* __restrict__ table, u64 capacity, const u64* ranges, u32 kind,
                      u32* matched, u64* row_ranges, u32* tile_matches, u64* tile_outputs) {
    const u64 count = rows.count();
    for (u64 tile = blockIdx.x; tile * kTile < rows.n; tile += gridDim.x) {
        typename Keys::Key key[kItems];
        u64 slot[kItems];
        u64 entry[kItems];
        u64 range[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            entry[k] = kEmpty;
            if (at < count && rows.has_key(at)) {
                key[k] = probe.key(at);
                slot[k] = slot_of(probe.hash(key[k]), capacity);
                entry[k] = __ldg(&table[slot[k]]);
            }
        }
        u32 matches = 0;
        u64 outputs = 0;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            range[k] = 0;
            if (entry[k] != kEmpty) {
                entry[k] = find(build, probe, key[k], table, capacity, entry[k], slot[k]);
            }
            if (entry[k] != kEmpty) {
                range[k] = ranges[slot[k]];
                if (kind == kFull) {
                    const u32 bit = 1u << (slot[k] & 31);
                    u32* word = &matched[slot[k] >> 5];
                    if ((*static_cast<volatile u32*>(word) & bit) == 0) {
                        atomicOr(word, bit);
                    }
                }
            } else if (kind != kInner && at < count && rows.has_key(at)) {
                // One output row, without a build row.
                range[k] = (static_cast<u64>(kNone) << 32) | 1u;
            }
            if (at < count) {
                row_ranges[at] = range[k];
            }
            matches += static_cast<u32>(range[k]) != 0;
            outputs += static_cast<u32>(range[k]);
        }
        u32 all_matches;
        u64 all_outputs;
        block_sum(matches, &all_matches);
        block_sum(outputs, &all_outputs);
        if (threadIdx.x == 0) {
            tile_matches[tile] = all_matches;
            tile_outputs[tile] = all_outputs;
        }
    }
}

}  // namespace

// counts[p] += the rows of part p, counts[256] += those of all parts.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_histogram_u32(const u32* __restrict__ keys, const u32* __restrict__ valid,
                            u32 has_valid, u32 mask, u32* counts, u64 n) {
    histogram(Words{keys, mask}, valid, has_valid, counts, n);
}

extern "C" __global__ void __launch_bounds__(256)
    xlog_join_histogram_u64(const u64* __restrict__ keys, const u32* __restrict__ valid,
                            u32 has_valid, u32 mask, u32* counts, u64 n) {
    histogram(Longs{keys, nullptr, 0, mask}, valid, has_valid, counts, n);
}

// Keys and values in the order of parts; rows without a key are left out. cursors are zero before.
extern "C" __global__ void __launch_bounds__(256, 4)
    xlog_join_scatter_u32(const u32* __restrict__ keys, const u32* __restrict__ values,
                          u32 has_values, const u32* __restrict__ valid, u32 has_valid, u32 mask,
                          const u32* __restrict__ counts, u32* cursors,
                          u32* __restrict__ out_keys, u32* __restrict__ out_values, u64 n) {
    PartWords side;
    side.keys = keys;
    side.mask = mask;
    scatter<PartWords, u32, 16>(side, Rows{values, has_values, valid, has_valid, nullptr, 0, n},
                                counts, cursors, out_keys, out_values);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    xlog_join_scatter_u64(const u64* __restrict__ keys, const u32* __restrict__ values,
                          u32 has_values, const u32* __restrict__ valid, u32 has_valid, u32 mask,
                          const u32* __restrict__ counts, u32* cursors,
                          u64* __restrict__ out_keys, u32* __restrict__ out_values, u64 n) {
    PartLongs side;
    side.keys = keys;
    side.extra = nullptr;
    side.has_extra = 0;
    side.mask = mask;
    scatter<PartLongs, u64, 8>(side, Rows{values, has_values, valid, has_valid, nullptr, 0, n},
                               counts, cursors, out_keys, out_values);
}

// The short way's table. 32-bit keys: (key, value), so that a probe needs nothing else. The key of
// all ones could make an entry look empty, so its one row is kept in control.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_build_u32(const u32* __restrict__ keys, const u32* __restrict__ values,
                        u32 has_values, const u32* __restrict__ valid, u32 has_valid,
                        const u32* __restrict__ used, u32 has_used, u64* table, u64 capacity,
                        u32 mask, u32 kind, u64* control, u64 n) {
    const Words side{keys, mask};
    const Rows rows{values, has_values, valid, has_valid, used, has_used, n};
    const u64 count = rows.count();
    const bool peek = may_repeat(kind);
    for (u64 tile = blockIdx.x; tile * kTile < count; tile += gridDim.x) {
        if (*static_cast<volatile u64*>(&control[kRepeats]) != 0) {
            return;
        }
        u32 word[kItems];
        u32 value[kItems];
        bool there[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            there[k] = at < count && rows.has_key(at);
            word[k] = at < count ? keys[at] : 0;
            value[k] = at < count ? rows.value(at) : 0;
        }
        bool fresh = true;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            if (!there[k]) {
                continue;
            }
            if (word[k] == kNone) {
                fresh &= atomicAdd(&control[kOnesCount], 1ull) == 0;
                control[kOnesValue] = value[k];
            } else {
                fresh &= insert_once(side, Words::Key{word[k]}, value[k], table, capacity, peek);
            }
        }
        if (!fresh && !may_repeat(kind)) {
            control[kRepeats] = 1;
        }
    }
}

// 64-bit keys: (half of the hash, position).
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_build_u64(const u64* __restrict__ keys, const u32* __restrict__ extra, u32 has_extra,
                        const u32* __restrict__ valid, u32 has_valid,
                        const u32* __restrict__ used, u32 has_used, u64* table, u64 capacity,
                        u32 mask, u32 kind, u64* control, u64 n) {
    const Longs side{keys, extra, has_extra, mask};
    const Rows rows{nullptr, 0, valid, has_valid, used, has_used, n};
    const u64 count = rows.count();
    const bool peek = may_repeat(kind);
    for (u64 tile = blockIdx.x; tile * kTile < count; tile += gridDim.x) {
        if (*static_cast<volatile u64*>(&control[kRepeats]) != 0) {
            return;
        }
        Longs::Key key[kItems];
        bool there[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            there[k] = at < count && rows.has_key(at);
            key[k] = side.key(at < count ? at : 0);
        }
        bool fresh = true;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            if (there[k]) {
                fresh &= insert_once(side, key[k], static_cast<u32>(at), table, capacity, peek);
            }
        }
        if (!fresh && !may_repeat(kind)) {
            control[kRepeats] = 1;
        }
    }
}

// The short way's output. Does nothing if a build key repeats. For a full join the rows that found
// a partner are marked in `matched` by their build value, which is a row number then. Rows without
// a key are not its business: xlog_join_append adds those that belong to the output.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_probe_u32(const u32* __restrict__ keys, const u32* __restrict__ values,
                        u32 has_values, const u32* __restrict__ valid, u32 has_valid,
                        const u32* __restrict__ used, u32 has_used,
                        const u64* __restrict__ table, u64 capacity, u32 mask, u32 kind,
                        u32* matched, u64* control, u32* __restrict__ out_keys, u32 has_out_keys,
                        u32* __restrict__ out_build, u32* __restrict__ out_probe, u64 n) {
    if (control[kRepeats] != 0) {
        return;
    }
    const Words side{keys, mask};
    const Rows rows{values, has_values, valid, has_valid, used, has_used, n};
    const u64 count = rows.count();
    for (u64 tile = blockIdx.x; tile * kTile < count; tile += gridDim.x) {
        u32 word[kItems];
        u64 slot[kItems];
        u64 entry[kItems];
        u32 partner[kItems];
        bool taken[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            taken[k] = at < count && rows.has_key(at);
            word[k] = taken[k] ? keys[at] : 0;
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            slot[k] = slot_of(side.hash(Words::Key{word[k]}), capacity);
            entry[k] = taken[k] && word[k] != kNone ? __ldg(&table[slot[k]]) : kEmpty;
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            bool hit = false;
            partner[k] = kNone;
            if (taken[k] && word[k] == kNone) {
                hit = control[kOnesCount] != 0;
                partner[k] = hit ? static_cast<u32>(control[kOnesValue]) : kNone;
            } else if (entry[k] != kEmpty) {
                entry[k] = find(side, side, Words::Key{word[k]}, table, capacity, entry[k],
                                slot[k]);
                hit = entry[k] != kEmpty;
                partner[k] = hit ? static_cast<u32>(entry[k]) : kNone;
            }
            if (hit && kind == kFull) {
                atomicOr(&matched[partner[k] >> 5], 1u << (partner[k] & 31));
            }
            const bool wanted = kind == kAnti ? !hit : hit || kind == kLeft || kind == kFull;
            taken[k] = taken[k] && wanted;
        }
        u64 place[kItems];
        places(taken, &control[kOutput], place);
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            if (taken[k]) {
                const u64 at = tile * kTile + k * kThreads + threadIdx.x;
                if (has_out_keys) {
                    out_keys[place[k]] = word[k];
                }
                if (!may_repeat(kind)) {
                    out_build[place[k]] = partner[k];
                }
                out_probe[place[k]] = rows.value(at);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    xlog_join_probe_u64(const u64* __restrict__ keys, const u32* __restrict__ extra,
                        const u32* __restrict__ values, u32 has_values,
                        const u32* __restrict__ valid, u32 has_valid,
                        const u32* __restrict__ used, u32 has_used,
                        const u64* __restrict__ build_keys, const u32* __restrict__ build_extra,
                        u32 has_extra, const u32* __restrict__ build_values, u32 has_build_values,
                        const u64* __restrict__ table, u64 capacity, u32 mask, u32 kind,
                        u32* matched, u64* control, u32* __restrict__ out_build,
                        u32* __restrict__ out_probe, u64 n) {
    if (control[kRepeats] != 0) {
        return;
    }
    const Longs build{build_keys, build_extra, has_extra, mask};
    const Longs probe{keys, extra, has_extra, mask};
    const Rows rows{values, has_values, valid, has_valid, used, has_used, n};
    const u64 count = rows.count();
    for (u64 tile = blockIdx.x; tile * kTile < count; tile += gridDim.x) {
        Longs::Key key[kItems];
        u64 slot[kItems];
        u64 entry[kItems];
        u32 partner[kItems];
        bool taken[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            taken[k] = at < count && rows.has_key(at);
            key[k] = probe.key(at < count ? at : 0);
            slot[k] = slot_of(probe.hash(key[k]), capacity);
            entry[k] = taken[k] ? __ldg(&table[slot[k]]) : kEmpty;
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            partner[k] = kNone;
            entry[k] = find(build, probe, key[k], table, capacity, entry[k], slot[k]);
            const bool hit = entry[k] != kEmpty;
            if (hit && !may_repeat(kind)) {
                const u32 at = static_cast<u32>(entry[k]);
                partner[k] = has_build_values ? build_values[at] : at;
                if (kind == kFull) {
                    atomicOr(&matched[partner[k] >> 5], 1u << (partner[k] & 31));
                }
            }
            const bool wanted = kind == kAnti ? !hit : hit || kind == kLeft || kind == kFull;
            taken[k] = taken[k] && wanted;
        }
        u64 place[kItems];
        places(taken, &control[kOutput], place);
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            if (taken[k]) {
                const u64 at = tile * kTile + k * kThreads + threadIdx.x;
                if (!may_repeat(kind)) {
                    out_build[place[k]] = partner[k];
                }
                out_probe[place[k]] = rows.value(at);
            }
        }
    }
}

// ranks[i] = how many rows of row i's slot came before it; ranges[slot] = how many there are. Rows
// of one slot within a warp add once: a key with a million rows would queue up otherwise.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_rank(const u32* __restrict__ slots, const u32* __restrict__ used, u32 has_used,
                   u64* ranges, u32* __restrict__ ranks, u64 n) {
    const u64 count = has_used ? used[kUsed] : n;
    const u32 lane = threadIdx.x & 31;
    for (u64 tile = blockIdx.x; tile * kThreads < count; tile += gridDim.x) {
        const u64 at = tile * kThreads + threadIdx.x;
        const u32 slot = at < count ? slots[at] : kNone;
        const u32 peers = __match_any_sync(kFullWarp, slot);
        const u32 leader = __ffs(peers) - 1;
        u32 base = 0;
        if (lane == leader && slot != kNone) {
            base = static_cast<u32>(atomicAdd(&ranges[slot], static_cast<u64>(__popc(peers))));
        }
        base = __shfl_sync(kFullWarp, base, leader);
        if (slot != kNone) {
            ranks[at] = base + __popc(peers & ((1u << lane) - 1u));
        }
    }
}

// ranges[slot] = (where its list starts, how long it is).
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_offsets(u64* ranges, u64 capacity, u64* control) {
    __shared__ u64 block_start;
    for (u64 tile = blockIdx.x; tile * kTile < capacity; tile += gridDim.x) {
        u32 count[kItems];
        u32 sum = 0;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 slot = tile * kTile + k * kThreads + threadIdx.x;
            count[k] = slot < capacity ? static_cast<u32>(ranges[slot]) : 0;
            sum += count[k];
        }
        u32 total;
        u32 before = block_sum(sum, &total);
        if (threadIdx.x == 0) {
            block_start = total == 0 ? 0 : atomicAdd(&control[kListed], static_cast<u64>(total));
        }
        __syncthreads();
        u64 start = block_start + before;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 slot = tile * kTile + k * kThreads + threadIdx.x;
            if (count[k] != 0) {
                ranges[slot] = (start << 32) | count[k];
                start += count[k];
            }
        }
        __syncthreads();
    }
}

// The build rows' values, those of one key side by side.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_place(const u32* __restrict__ slots, const u32* __restrict__ ranks,
                    const u64* __restrict__ ranges, const u32* __restrict__ values, u32 has_values,
                    const u32* __restrict__ used, u32 has_used, u32* __restrict__ list, u64 n) {
    const Rows rows{values, has_values, nullptr, 0, used, has_used, n};
    const u64 count = rows.count();
    const u64 stride = static_cast<u64>(gridDim.x) * kThreads;
    for (u64 at = static_cast<u64>(blockIdx.x) * kThreads + threadIdx.x; at < count; at += stride) {
        const u32 slot = slots[at];
        if (slot != kNone) {
            list[(ranges[slot] >> 32) + ranks[at]] = rows.value(at);
        }
    }
}

// row_ranges[i] = which part of the list probe row i meets, and the sums of each 1024 rows. Left
// and full joins give a row without a partner one output row; a start of all ones says so.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_match_u32(const u32* __restrict__ keys, const u32* __restrict__ valid, u32 has_valid,
                        const u32* __restrict__ used, u32 has_used,
                        const u64* __restrict__ table, u64 capacity, u32 mask,
                        const u64* __restrict__ ranges, u32 kind, u32* matched,
                        u64* __restrict__ row_ranges, u32* __restrict__ tile_matches,
                        u64* __restrict__ tile_outputs, u64 n) {
    const Words side{keys, mask};
    match(side, side, Rows{nullptr, 0, valid, has_valid, used, has_used, n}, table, capacity,
          ranges, kind, matched, row_ranges, tile_matches, tile_outputs);
}

extern "C" __global__ void __launch_bounds__(256)
    xlog_join_match_u64(const u64* __restrict__ keys, const u32* __restrict__ extra,
                        const u32* __restrict__ valid, u32 has_valid,
                        const u32* __restrict__ used, u32 has_used,
                        const u64* __restrict__ build_keys, const u32* __restrict__ build_extra,
                        u32 has_extra, const u64* __restrict__ table, u64 capacity, u32 mask,
                        const u64* __restrict__ ranges, u32 kind, u32* matched,
                        u64* __restrict__ row_ranges, u32* __restrict__ tile_matches,
                        u64* __restrict__ tile_outputs, u64 n) {
    match(Longs{build_keys, build_extra, has_extra, mask}, Longs{keys, extra, has_extra, mask},
          Rows{nullptr, 0, valid, has_valid, used, has_used, n}, table, capacity, ranges, kind,
          matched, row_ranges, tile_matches, tile_outputs);
}

// The exclusive sums of both tile arrays, in place, and their totals in control. One block: there
// is a tile for each 1024 rows only.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_scan(u32* tile_matches, u64* tile_outputs, u64* control, u64 tiles) {
    u64 matches = 0;
    u64 outputs = 0;
    for (u64 first = 0; first < tiles; first += kTile) {
        u32 match[kItems];
        u64 output[kItems];
        u32 match_sum = 0;
        u64 output_sum = 0;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 tile = first + threadIdx.x * kItems + k;
            match[k] = tile < tiles ? tile_matches[tile] : 0;
            output[k] = tile < tiles ? tile_outputs[tile] : 0;
            match_sum += match[k];
            output_sum += output[k];
        }
        u32 match_total;
        u64 output_total;
        u64 match_before = matches + block_sum(match_sum, &match_total);
        u64 output_before = outputs + block_sum(output_sum, &output_total);
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 tile = first + threadIdx.x * kItems + k;
            if (tile < tiles) {
                tile_matches[tile] = static_cast<u32>(match_before);
                tile_outputs[tile] = output_before;
            }
            match_before += match[k];
            output_before += output[k];
        }
        matches += match_total;
        outputs += output_total;
    }
    if (threadIdx.x == 0) {
        control[kOutput] = outputs;
        control[kMatches] = matches;
    }
}

// The probe rows that have output, side by side: where each one's output starts, what part of the
// list it meets, and which row it is.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_compact(const u64* __restrict__ row_ranges, const u32* __restrict__ used,
                      u32 has_used, const u32* __restrict__ tile_matches,
                      const u64* __restrict__ tile_outputs, u64* __restrict__ starts,
                      u64* __restrict__ ranges, u32* __restrict__ positions, u64 n) {
    const u64 count = has_used ? used[kUsed] : n;
    for (u64 tile = blockIdx.x; tile * kTile < count; tile += gridDim.x) {
        u64 range[kItems];
        u32 matches = 0;
        u64 outputs = 0;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + threadIdx.x * kItems + k;
            range[k] = at < count ? row_ranges[at] : 0;
            matches += static_cast<u32>(range[k]) != 0;
            outputs += static_cast<u32>(range[k]);
        }
        u32 all_matches;
        u64 all_outputs;
        u64 to = tile_matches[tile] + block_sum(matches, &all_matches);
        u64 start = tile_outputs[tile] + block_sum(outputs, &all_outputs);
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            if (static_cast<u32>(range[k]) != 0) {
                starts[to] = start;
                ranges[to] = range[k];
                positions[to] = static_cast<u32>(tile * kTile + threadIdx.x * kItems + k);
                start += static_cast<u32>(range[k]);
                ++to;
            }
        }
    }
}

// One thread for each output row: it finds the probe row whose output it is. A tile of outputs meets
// no more probe rows than it has outputs, since each has one at least.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_expand(const u64* __restrict__ starts, const u64* __restrict__ ranges,
                     const u32* __restrict__ positions, const u32* __restrict__ list,
                     const u32* __restrict__ values, u32 has_values, u64 rows,
                     const u32* __restrict__ keys, u32 has_keys, u32* __restrict__ out_keys,
                     u32* __restrict__ out_build, u32* __restrict__ out_probe, u64 outputs) {
    __shared__ u32 own[kTile + 1];
    __shared__ u64 first_row;
    __shared__ u64 last_row;
    for (u64 tile = blockIdx.x; tile * kTile < outputs; tile += gridDim.x) {
        const u64 begin = tile * kTile;
        const u64 end = begin + kTile < outputs ? begin + kTile : outputs;
        if (threadIdx.x < 2) {
            // The last row that starts at or before the tile's first, or last, output.
            const u64 wanted = threadIdx.x == 0 ? begin : end - 1;
            u64 low = 0;
            u64 high = rows;
            while (high - low > 1) {
                const u64 middle = low + (high - low) / 2;
                if (starts[middle] <= wanted) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            if (threadIdx.x == 0) {
                first_row = low;
            } else {
                last_row = low;
            }
        }
        __syncthreads();
        const u64 first = first_row;
        const u32 met = static_cast<u32>(last_row - first) + 1;
        for (u32 i = threadIdx.x; i < met; i += kThreads) {
            const u64 start = starts[first + i];
            own[i] = start > begin ? static_cast<u32>(start - begin) : 0;
        }
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u32 mine = k * kThreads + threadIdx.x;
            const u64 at = begin + mine;
            if (at < end) {
                u32 low = 0;
                u32 high = met;
                while (high - low > 1) {
                    const u32 middle = (low + high) / 2;
                    if (own[middle] <= mine) {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                const u64 row = first + low;
                const u64 range = ranges[row];
                const u32 list_start = static_cast<u32>(range >> 32);
                const u32 position = positions[row];
                u32 partner = kNone;
                if (list_start != kNone) {
                    partner = list[list_start + (at - starts[row])];
                }
                out_build[at] = partner;
                out_probe[at] = has_values ? values[position] : position;
                if (has_keys) {
                    out_keys[at] = keys[position];
                }
            }
        }
        __syncthreads();
    }
}

// Bits of build rows from bits of slots: a row has a partner if its slot has one.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_mark(const u32* __restrict__ slots, const u32* __restrict__ slot_bits,
                   u32* __restrict__ row_bits, u64 n) {
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    const u64 end = (n + 31) / 32 * 32;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += stride) {
        const u32 slot = i < n ? slots[i] : kNone;
        const u32 bits = __ballot_sync(kFullWarp, slot != kNone && bit_of(slot_bits, slot));
        if ((i & 31) == 0) {
            row_bits[i >> 5] = bits;
        }
    }
}

// control[kAppended] += the rows whose bit is not set.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_count_unset(const u32* __restrict__ bits, u64* control, u64 n) {
    const u64 words = (n + 31) / 32;
    const u64 stride = static_cast<u64>(gridDim.x) * kThreads;
    u64 mine = 0;
    for (u64 w = static_cast<u64>(blockIdx.x) * kThreads + threadIdx.x; w < words; w += stride) {
        const u32 inside = n - w * 32 < 32 ? (1u << (n - w * 32)) - 1u : 0xffffffffu;
        mine += __popc(~bits[w] & inside);
    }
    u64 total;
    block_sum(mine, &total);
    if (threadIdx.x == 0 && total != 0) {
        atomicAdd(&control[kAppended], total);
    }
}

// Appends the rows whose bit is not set to the output, without a partner. Like the probe, it does
// nothing if the short way (`short_way` is 1) was left.
extern "C" __global__ void __launch_bounds__(256)
    xlog_join_append(const u32* __restrict__ bits, u32 build_side, u32 has_other, u32 short_way,
                     u64* control, u32* __restrict__ out_build, u32* __restrict__ out_probe,
                     u64 n) {
    if (short_way && control[kRepeats] != 0) {
        return;
    }
    for (u64 tile = blockIdx.x; tile * kTile < n; tile += gridDim.x) {
        bool taken[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            taken[k] = at < n && !bit_of(bits, at);
        }
        u64 place[kItems];
        places(taken, &control[kOutput], place);
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            if (taken[k]) {
                const u32 row = static_cast<u32>(tile * kTile + k * kThreads + threadIdx.x);
                if (build_side || has_other) {
                    out_build[place[k]] = build_side ? row : kNone;
                }
                if (!build_side || has_other) {
                    out_probe[place[k]] = build_side ? kNone : row;
                }
            }
        }
    }
}
