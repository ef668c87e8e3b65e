// Compaction in one pass: what is selected of many rows, in their order, and how many that is.
//
// A block takes one tile of rows after the other. Each of its warps takes a segment of the tile: 32
// rows at a time, one to a lane, so that loads are whole lines and the vote of a warp is the flags
// of 32 rows that follow one another. A warp packs its selected values into shared memory at once.
// What the tiles before have selected is known later, by looking back at their words, and the
// values go out from shared memory then, to whole lines. Their registers are free by that time:
// the next tile is on its way into them while the block waits for that sum, and writes.
//
// `tiles` is zero when the kernel starts. The first word counts the tiles that were handed out;
// those of the tiles begin at `kFirstTile`, in a line of memory that the counter does not share. A
// single tile needs none of them.
//
// Progress. Tiles are handed out in their order to blocks that run, and a block works through its
// tiles in that order too. A tile waits for lower ones only, so the lowest that is not done belongs
// to a block that runs and waits for nothing: however few blocks the device runs at a time, and
// whatever else runs there, the pass ends. By block number the same holds as far as blocks start in
// the order of their numbers.
//
// Memory order. A word is written at once and carries all that it says, state and count; nothing
// else passes between blocks. So relaxed accesses that are coherent across the device are enough.

#pragma once

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 kAll = 0xffffffffu;

// What a tile's word says in its upper half; the lower half is a count.
constexpr u32 kUnknown = 0;
// The count is what this tile has selected.
constexpr u32 kAlone = 1;
// The count is what this tile and all before it have selected.
constexpr u32 kWithAllBefore = 2;

// Words before those of the tiles: one line of memory.
constexpr u32 kFirstTile = 16;

__device__ __forceinline__ u64 read_word(const u64* word) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word));
    return value;
}

__device__ __forceinline__ void write_word(u64* word, u32 state, u32 count) {
    const u64 value = static_cast<u64>(state) << 32 | count;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(word), "l"(value));
}

// Shared memory by its address, which a register holds: from a name, the compiler computes it again
// for every access.
__device__ __forceinline__ void write_shared(u32 address, u32 value) {
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void write_shared(u32 address, u64 value) {
    asm volatile("st.shared.u64 [%0], %1;" : : "r"(address), "l"(value) : "memory");
}

__device__ __forceinline__ void read_shared(u32 address, u32& value) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
}

__device__ __forceinline__ void read_shared(u32 address, u64& value) {
    asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(address) : "memory");
}

// How many rows the tiles before `tile` have selected. A whole warp calls it. `Words` are on their
// way for each lane at a time: the sum can advance by that many times 32 tiles for each trip to
// memory, and when it advances more slowly than tiles are loaded, tiles wait.
template <int Words>
__device__ __forceinline__ u32 look_back(const u64* tile_words, u32 tile, u32 lane) {
    u32 sum = 0;
    for (u32 done = 0;; done += 32 * Words) {
        u64 words[Words];
#pragma unroll
        for (int w = 0; w < Words; ++w) {
            // Before the first tile, nothing is selected.
            const u32 back = done + 32 * w + lane;
            words[w] = static_cast<u64>(kWithAllBefore) << 32;
            if (back < tile) {
                words[w] = read_word(tile_words + (tile - 1 - back));
            }
        }
#pragma unroll
        for (int w = 0; w < Words; ++w) {
            u32 ends;
            u32 needed;
            for (;;) {
                const u32 state = static_cast<u32>(words[w] >> 32);
                ends = __ballot_sync(kAll, state == kWithAllBefore);
                // The lanes up to the nearest that knows all before it, itself included.
                needed = ends != 0 ? ends ^ (ends - 1) : kAll;
                if ((__ballot_sync(kAll, state == kUnknown) & needed) == 0) {
                    break;
                }
                // A lane before the first tile is never unknown.
                if (state == kUnknown) {
                    words[w] = read_word(tile_words + (tile - 1 - (done + 32 * w + lane)));
                }
            }
            if ((needed >> lane & 1) != 0) {
                sum += static_cast<u32>(words[w]);
            }
            if (ends != 0) {
#pragma unroll
                for (int step = 16; step > 0; step /= 2) {
                    sum += __shfl_xor_sync(kAll, sum, step);
                }
                return sum;
            }
        }
    }
}

// Whether a value lies in a range, by the order of its type; or whether it does not. Every
// comparison with a literal is one of these two, and costs a subtraction and a comparison.
//
// `magnitude` and `flip` change bits so that their unsigned order is the order of the values.
template <typename Bits>
struct InRange {
    Bits magnitude;
    Bits flip;
    Bits least;
    Bits span;
    bool outside;

    __device__ __forceinline__ bool operator()(Bits bits) const {
        constexpr int last = 8 * sizeof(Bits) - 1;
        const Bits sign = Bits(0) - (bits >> last);
        const Bits ordered = bits ^ (sign & magnitude) ^ flip;
        return (ordered - least <= span) != outside;
    }
};

// The flags of 32 rows that follow one another, and this lane's own among them.
struct Picked {
    u32 lanes;
    bool own;
};

// A lane's part of a segment: every 32nd value. All are on their way before the first is used. They
// are read once: what else the cache holds is worth more.
template <typename Bits, int Items>
__device__ __forceinline__ void load_values(Bits (&held)[Items], const Bits* segment, u32 left,
                                            u32 lane) {
    const Bits* from = segment + lane;
    if (left >= 32 * Items) {
#pragma unroll
        for (int k = 0; k < Items; ++k) {
            held[k] = __ldcs(from + 32 * k);
        }
    } else {
#pragma unroll
        for (int k = 0; k < Items; ++k) {
            held[k] = 32 * k + lane < left ? __ldcs(from + 32 * k) : Bits(0);
        }
    }
}

// What is selected, and from which memory: a source holds a lane's part of one segment. `load` is
// given the segment's first row and how many rows there are from there on; `pick` and `value` are
// about the k-th row of this lane, and are asked for the same segment. `Whole` says that all of it
// lies before the end.

// Values by a condition on them, or the numbers of their rows.
template <typename Bits, int Items, bool RowNumbers>
struct ByRange {
    const Bits* values;
    InRange<Bits> condition;
    Bits held[Items];

    __device__ __forceinline__ void load(u64 first, u32 left, u32 lane) {
        load_values(held, values + first, left, lane);
    }

    template <bool Whole>
    __device__ __forceinline__ Picked pick(int k, u32 left, u32 lane) const {
        const bool own = condition(held[k]) && (Whole || 32 * k + lane < left);
        return {__ballot_sync(kAll, own), own};
    }

    __device__ __forceinline__ auto value(int k, u32 first, u32 lane) const {
        if constexpr (RowNumbers) {
            return first + 32 * k + lane;
        } else {
            return held[k];
        }
    }
};

// A lane's word of a mask, 32 rows to a word, the lowest bit first. Words and rows of 32 are the
// same thing: a lane keeps the word of the row of its own number, and no vote is needed.
template <int Items>
struct MaskWords {
    static_assert(Items <= 32, "a lane holds one word");
    const u32* mask;
    u32 word;

    __device__ __forceinline__ void load_word(u64 first, u32 left, u32 lane) {
        word = 0;
        if (lane < Items && 32 * lane < left) {
            word = mask[first / 32 + lane];
            const u32 bits = left - 32 * lane;
            // Bits behind the last row say nothing.
            word &= bits < 32 ? (1u << bits) - 1 : kAll;
        }
    }

    __device__ __forceinline__ Picked pick_word(int k, u32 lane) const {
        const u32 lanes = __shfl_sync(kAll, word, k);
        return {lanes, (lanes >> lane & 1) != 0};
    }
};

// Values by a mask.
template <typename Bits, int Items>
struct ByMask : MaskWords<Items> {
    const Bits* values;
    Bits held[Items];

    __device__ __forceinline__ void load(u64 first, u32 left, u32 lane) {
        this->load_word(first, left, lane);
        load_values(held, values + first, left, lane);
    }

    template <bool Whole>
    __device__ __forceinline__ Picked pick(int k, u32, u32 lane) const {
        return this->pick_word(k, lane);
    }

    __device__ __forceinline__ Bits value(int k, u32, u32) const { return held[k]; }
};

// Row numbers by a mask.
template <int Items>
struct RowsByMask : MaskWords<Items> {
    __device__ __forceinline__ void load(u64 first, u32 left, u32 lane) {
        this->load_word(first, left, lane);
    }

    template <bool Whole>
    __device__ __forceinline__ Picked pick(int k, u32, u32 lane) const {
        return this->pick_word(k, lane);
    }

    __device__ __forceinline__ u32 value(int k, u32 first, u32 lane) const {
        return first + 32 * k + lane;
    }
};

// How tiles come to blocks.
enum class Tiles {
    // Handed out, one after the other, to as many blocks as the device runs at a time.
    Handed,
    // A block for each, by its number.
    ByBlock,
};

// How values get out.
enum class Write {
    // By way of shared memory.
    Staged,
    // From their registers, which they keep until then.
    Direct,
};

// Threads of a block, rows of a thread, and words of a lane in a look-back. The last warp takes no
// rows: it is handed the tiles, and looks back.
template <int ThreadCount, int ItemCount, Tiles Order = Tiles::Handed,
          Write Writing = Write::Staged, int LookBack = 4>
struct Tuning {
    static constexpr int kThreads = ThreadCount;
    static constexpr int kItems = ItemCount;
    static constexpr Tiles kOrder = Order;
    static constexpr Write kWrite = Writing;
    static constexpr int kWords = LookBack;
    static constexpr u32 kWarps = ThreadCount / 32 - 1;
    static constexpr u32 kSegment = 32 * ItemCount;
    static constexpr u32 kTile = kWarps * kSegment;
    static_assert(ThreadCount % 32 == 0 && kWarps > 0, "whole warps, and one that looks back");
};

// Calls `take` with the place and the value of each of this lane's rows that is selected. Places
// begin at `at` and are `Step` apart. Gives the place behind the last of the warp.
template <int Items, u32 Step, bool Whole, typename Source, typename Take>
__device__ __forceinline__ u32 for_each_picked(const Source& source, u32 at, u32 first, u32 left,
                                               u32 lane, Take take) {
    const u32 below = (1u << lane) - 1;
#pragma unroll
    for (int k = 0; k < Items; ++k) {
        const Picked picked = source.template pick<Whole>(k, left, lane);
        if (picked.own) {
            take(at + Step * __popc(picked.lanes & below), source.value(k, first, lane));
        }
        at += Step * __popc(picked.lanes);
    }
    return at;
}

template <int Items, u32 Step, typename Source, typename Take>
__device__ __forceinline__ u32 for_each_picked(const Source& source, u32 at, u32 first, u32 left,
                                               u32 lane, Take take) {
    return left >= 32 * Items
               ? for_each_picked<Items, Step, true>(source, at, first, left, lane, take)
               : for_each_picked<Items, Step, false>(source, at, first, left, lane, take);
}

// The pass. `rows` is below 2^32 and not 0; `count` is written by the block of the last tile.
//
// What a warp has asked memory for is counted in few counters, and a warp that waits for a word
// may wait for values as well. So the warp that looks back loads no values.
template <typename Tuned, typename Source, typename Output>
__device__ __forceinline__ void compact(Source source, Output* selected, u64* count, u64* tiles,
                                        u32 rows, u32 tile_count) {
    constexpr bool handed_out = Tuned::kOrder == Tiles::Handed;
    constexpr bool staged = Tuned::kWrite == Write::Staged;
    __shared__ Output stage[staged ? Tuned::kTile : 1];
    __shared__ u32 totals[Tuned::kWarps];
    __shared__ u32 before;
    __shared__ u32 first_handed;
    __shared__ u32 next_handed;

    const u32 lane = threadIdx.x % 32;
    const u32 warp = threadIdx.x / 32;
    const bool looks_back = warp == Tuned::kWarps;
    const u32 segment = warp * Tuned::kSegment;
    // The same in all lanes, and by way of one: so the compiler keeps it.
    const u32 packed = __shfl_sync(
        kAll, static_cast<u32>(__cvta_generic_to_shared(stage)) + segment * sizeof(Output), 0);
    u64* tile_words = tiles + kFirstTile;
    const auto hand_out = [&] { return static_cast<u32>(atomicAdd(tiles, 1ull)); };
    // Rows from this warp's segment of a tile to the end.
    const auto left_of = [&](u32 tile) {
        const u32 left = rows - tile * Tuned::kTile;
        return left > segment ? left - segment : 0;
    };
    const auto load = [&](u32 tile) {
        const u64 first = static_cast<u64>(tile) * Tuned::kTile + segment;
        source.load(first, left_of(tile), lane);
    };

    u32 tile = blockIdx.x;
    if (handed_out && tile_count > 1) {
        if (threadIdx.x == 0) {
            first_handed = hand_out();
        }
        __syncthreads();
        tile = first_handed;
    }
    if (tile >= tile_count) {
        return;
    }
    if (!looks_back) {
        load(tile);
    }
    for (;;) {
        const u32 first = tile * Tuned::kTile + segment;
        const u32 left = left_of(tile);
        u32 total = 0;
        if (looks_back) {
            if (lane == 0) {
                // Long before the others get here.
                next_handed = handed_out && tile_count > 1 ? hand_out() : tile_count;
            }
        } else {
            if constexpr (staged) {
                const u32 end = for_each_picked<Tuned::kItems, sizeof(Output)>(
                    source, packed, first, left, lane,
                    [](u32 address, Output value) { write_shared(address, value); });
                total = (end - packed) / sizeof(Output);
            } else {
                total = for_each_picked<Tuned::kItems, 1>(source, 0, first, left, lane,
                                                          [](u32, Output) {});
            }
            if (lane == 0) {
                totals[warp] = total;
            }
        }
        __syncthreads();

        const u32 next = next_handed;
        // What the warps before this one have; for the warp behind the last, the tile.
        u32 place = 0;
#pragma unroll
        for (u32 w = 0; w < Tuned::kWarps; ++w) {
            place += w < warp ? totals[w] : 0;
        }
        if (looks_back) {
            u32 ahead = 0;
            if (tile > 0) {
                if (lane == 0) {
                    write_word(tile_words + tile, kAlone, place);
                }
                ahead = look_back<Tuned::kWords>(tile_words, tile, lane);
            }
            if (lane == 0) {
                before = ahead;
                if (tile_count > 1) {
                    write_word(tile_words + tile, kWithAllBefore, ahead + place);
                }
                if (tile == tile_count - 1) {
                    *count = ahead + place;
                }
            }
        } else if (staged && next < tile_count) {
            load(next);
        }
        __syncthreads();

        if (!looks_back) {
            place += before;
            if constexpr (staged) {
                // From the line on that holds the first of them, so that each store is one line.
                const u32 shift = place % 32;
                Output* lines = selected + (place - shift);
                const u32 line = packed - shift * sizeof(Output);
#pragma unroll 4
                for (u32 i = lane; i < shift + total; i += 32) {
                    if (i >= shift) {
                        Output value;
                        read_shared(line + i * sizeof(Output), value);
                        lines[i] = value;
                    }
                }
                // All is read before the next tile's values come to the same place.
                __syncwarp();
            } else {
                for_each_picked<Tuned::kItems, 1>(
                    source, place, first, left, lane,
                    [&](u32 at, Output value) { selected[at] = value; });
                if (next < tile_count) {
                    load(next);
                }
            }
        }
        if (next >= tile_count) {
            return;
        }
        tile = next;
    }
}

}  // namespace
