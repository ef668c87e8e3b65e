// Groups and their aggregates.
//
// Two steps, so that nobody has to know the number of groups beforehand. First every row learns the
// slot of its key (xlog_table_insert) and the slots that are taken are numbered. Then each
// aggregate adds up by group number: in the shared memory of each block while the groups fit there,
// merged at the end; with atomics in memory otherwise.
//
// Cost per row of 4-byte keys and values: 8 bytes in the first step (key in, slot out), 8 in the
// second (slot and value in), plus one sector of the table, one of the numbers and one atomic. For
// 20 groups those stay in the first-level cache and shared memory, and 16 bytes at 4.2 TB/s would
// be 260 Grows/s; conflicts in shared memory take some 20 cycles for 32 rows, which is close to
// that. For 2^20 groups the sectors (32 MB each) live in the second-level cache: three of them at
// some 100 G/s are 30 Grows/s.
//
// Launch shape: one dimension, blocks of 256 threads, any grid.

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 kThreads = 256;
constexpr u32 kItems = 8;
constexpr u32 kTile = kThreads * kItems;
constexpr u64 kEmpty = ~0ull;
constexpr u32 kNoSlot = 0xffffffffu;
// The most groups that are added up in shared memory: two words of 64 bits each.
constexpr u32 kSharedGroups = 1024;
constexpr u32 kFullWarp = 0xffffffffu;

__device__ __forceinline__ bool bit_of(const u32* words, u64 index) {
    return (words[index >> 5] >> (index & 31)) & 1u;
}

// What is done with the values of a group. The numbers are those of the Rust side.
enum Operation : u32 {
    kCount = 0,
    kSumU32 = 1,
    kSumI32 = 2,
    kSumF32 = 3,
    kMinU32 = 4,
    kMaxU32 = 5,
    kMinI32 = 6,
    kMaxI32 = 7,
    kMinF32 = 8,
    kMaxF32 = 9,
    kSumU64 = 10,
    kSumI64 = 11,
    kSumF64 = 12,
    kMinU64 = 13,
    kMaxU64 = 14,
    kMinI64 = 15,
    kMaxI64 = 16,
    kMinF64 = 17,
    kMaxF64 = 18,
};

constexpr u64 kSign = 1ull << 63;

// Numbers as unsigned words of the same order; floats in total order.
__device__ __forceinline__ u64 ordered_signed(long long value) {
    return static_cast<u64>(value) ^ kSign;
}
__device__ __forceinline__ u64 ordered_f64(u64 bits) {
    return bits & kSign ? ~bits : bits | kSign;
}
__device__ __forceinline__ u64 ordered_f32(u32 bits) {
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Adds 64 bits to shared memory in two halves: 32-bit additions are one instruction there.
__device__ __forceinline__ void add_shared(u64* to, u64 value) {
    u32* halves = reinterpret_cast<u32*>(to);
    const u32 low = static_cast<u32>(value);
    const u32 before = atomicAdd(&halves[0], low);
    const u32 high = static_cast<u32>(value >> 32) + (before + low < before ? 1u : 0u);
    if (high != 0) {
        atomicAdd(&halves[1], high);
    }
}

// Adds `value`, extended by `sign` words, to 128 bits. Whoever makes the low word wrap carries, so
// the sum of all carries is right whatever the order.
__device__ __forceinline__ void add_wide(u64* low, u64* high, u64 value, u64 sign) {
    const u64 before = atomicAdd(low, value);
    const u64 more = sign + (before + value < before ? 1ull : 0ull);
    if (more != 0) {
        atomicAdd(high, more);
    }
}

template <bool kShared, u32 kOperation>
__device__ __forceinline__ void accumulate(u64* low, u64* high, u64 word) {
    switch (kOperation) {
        case kCount:
            if (kShared) {
                atomicAdd(reinterpret_cast<u32*>(low), static_cast<u32>(word));
            } else {
                atomicAdd(low, word);
            }
            break;
        case kSumU32:
        case kSumI32:
            if (kShared) {
                add_shared(low, word);
            } else {
                atomicAdd(low, word);
            }
            break;
        case kSumU64:
            add_wide(low, high, word, 0);
            break;
        case kSumI64:
            add_wide(low, high, word, static_cast<u64>(static_cast<long long>(word) >> 63));
            break;
        case kSumF32:
        case kSumF64:
            atomicAdd(reinterpret_cast<double*>(low), __longlong_as_double(word));
            break;
        case kMinU32:
        case kMinI32:
        case kMinF32:
        case kMinU64:
        case kMinI64:
        case kMinF64:
            if (word < *static_cast<volatile u64*>(low)) {
                atomicMin(low, word);
            }
            break;
        default:
            if (word > *static_cast<volatile u64*>(low)) {
                atomicMax(low, word);
            }
            break;
    }
}

// The word that `accumulate` takes for a value.
template <u32 kOperation>
__device__ __forceinline__ u64 word_of(u64 raw) {
    const u32 half = static_cast<u32>(raw);
    switch (kOperation) {
        case kCount:
            return 1;
        case kSumI32:
            return static_cast<u64>(static_cast<long long>(static_cast<int>(half)));
        case kSumF32:
            return __double_as_longlong(static_cast<double>(__uint_as_float(half)));
        case kMinI32:
        case kMaxI32:
            return half ^ 0x80000000u;
        case kMinF32:
        case kMaxF32:
            return ordered_f32(half);
        case kMinI64:
        case kMaxI64:
            return ordered_signed(static_cast<long long>(raw));
        case kMinF64:
        case kMaxF64:
            return ordered_f64(raw);
        default:
            return raw;
    }
}

// The value of a word that `accumulate` left behind.
__device__ __forceinline__ u64 value_of(u32 operation, u64 word) {
    const u32 half = static_cast<u32>(word);
    switch (operation) {
        case kMinI32:
        case kMaxI32:
            return half ^ 0x80000000u;
        case kMinF32:
        case kMaxF32:
            return half & 0x80000000u ? half ^ 0x80000000u : ~half;
        case kMinI64:
        case kMaxI64:
            return word ^ kSign;
        case kMinF64:
        case kMaxF64:
            return word & kSign ? word ^ kSign : ~word;
        default:
            return word;
    }
}

__device__ constexpr bool is_min(u32 operation) {
    return operation == kMinU32 || operation == kMinI32 || operation == kMinF32 ||
           operation == kMinU64 || operation == kMinI64 || operation == kMinF64;
}

__device__ constexpr bool is_max(u32 operation) {
    return operation == kMaxU32 || operation == kMaxI32 || operation == kMaxF32 ||
           operation == kMaxU64 || operation == kMaxI64 || operation == kMaxF64;
}

__device__ constexpr bool is_wide(u32 operation) {
    return operation == kSumU64 || operation == kSumI64;
}

// One value for a whole warp whose rows are all of one group: without this, a table of one group
// queues up at one address.
template <u32 kOperation>
__device__ __forceinline__ u64 combine_warp(u64 word) {
    for (u32 offset = 16; offset > 0; offset /= 2) {
        const u64 other = __shfl_xor_sync(kFullWarp, word, offset);
        if (kOperation == kSumF32 || kOperation == kSumF64) {
            word = __double_as_longlong(__longlong_as_double(word) + __longlong_as_double(other));
        } else if (is_min(kOperation)) {
            word = other < word ? other : word;
        } else if (is_max(kOperation)) {
            word = other > word ? other : word;
        } else {
            word += other;
        }
    }
    return word;
}

template <bool kShared, u32 kOperation, typename Word>
__device__ __forceinline__ void add_rows(const u32* slots, const u32* numbers, const Word* values,
                                         const u32* valid, u32 has_valid, u64* low, u64* high,
                                         u64 n) {
    for (u64 tile = blockIdx.x; tile * kTile < n; tile += gridDim.x) {
        u32 group[kItems];
        u64 word[kItems];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 at = tile * kTile + k * kThreads + threadIdx.x;
            group[k] = at < n ? slots[at] : kNoSlot;
            const bool counts = at < n && (!has_valid || bit_of(valid, at));
            word[k] = kOperation == kCount || at >= n ? 0 : static_cast<u64>(values[at]);
            group[k] = counts ? group[k] : kNoSlot;
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            group[k] = group[k] == kNoSlot ? kNoSlot : numbers[group[k]];
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            u64 mine = word_of<kOperation>(word[k]);
            const u32 first = __shfl_sync(kFullWarp, group[k], 0);
            // A 64-bit sum of a warp could wrap unseen, so those go one by one.
            if (!is_wide(kOperation) && __all_sync(kFullWarp, group[k] == first)) {
                if (first == kNoSlot) {
                    continue;
                }
                mine = combine_warp<kOperation>(mine);
                if ((threadIdx.x & 31) == 0) {
                    accumulate<kShared, kOperation>(low + first, high + first, mine);
                }
            } else if (group[k] != kNoSlot) {
                accumulate<kShared, kOperation>(low + group[k], high + group[k], mine);
            }
        }
    }
}

template <u32 kOperation, typename Word>
__device__ __forceinline__ void aggregate(const u32* slots, const u32* numbers, const Word* values,
                                          const u32* valid, u32 has_valid, u64* low, u64* high,
                                          u64 groups, u64 n, u64* shared) {
    if (groups > kSharedGroups) {
        add_rows<false, kOperation>(slots, numbers, values, valid, has_valid, low, high, n);
        return;
    }
    u64* own_low = shared;
    u64* own_high = shared + kSharedGroups;
    const u64 start = is_min(kOperation) ? ~0ull : 0;
    for (u32 g = threadIdx.x; g < groups; g += kThreads) {
        own_low[g] = start;
        own_high[g] = 0;
    }
    __syncthreads();
    add_rows<true, kOperation>(slots, numbers, values, valid, has_valid, own_low, own_high, n);
    __syncthreads();
    for (u32 g = threadIdx.x; g < groups; g += kThreads) {
        const u64 mine = own_low[g];
        if (is_wide(kOperation)) {
            // The low words carry on into the high ones as single values do.
            add_wide(low + g, high + g, mine, own_high[g]);
        } else if (mine != start) {
            accumulate<false, kOperation>(low + g, high + g, mine);
        }
    }
}

}  // namespace

// Numbers the slots that are taken: numbers[slot] and, for each number, a row of the group.
// *groups counts them; it is zero before. The row is the lower half of the slot's entry, or stands
// in `row_of` where the entry is all key.
extern "C" __global__ void __launch_bounds__(256)
    xlog_group_number(const u64* __restrict__ table, u64 capacity, const u32* __restrict__ row_of,
                      u32 has_row_of, u32* __restrict__ numbers, u32* __restrict__ rows,
                      u32* groups) {
    __shared__ u32 warp_start[kThreads / 32];
    __shared__ u32 block_start;
    const u32 lane = threadIdx.x & 31;
    const u32 warp = threadIdx.x / 32;
    for (u64 tile = blockIdx.x; tile * kTile < capacity; tile += gridDim.x) {
        u64 entry[kItems];
        u32 taken[kItems];
        u32 total = 0;
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            const u64 slot = tile * kTile + k * kThreads + threadIdx.x;
            entry[k] = slot < capacity ? table[slot] : kEmpty;
        }
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            taken[k] = __ballot_sync(kFullWarp, entry[k] != kEmpty);
            total += __popc(taken[k]);
        }
        if (lane == 0) {
            warp_start[warp] = total;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 sum = 0;
            for (u32 w = 0; w < kThreads / 32; ++w) {
                const u32 count = warp_start[w];
                warp_start[w] = sum;
                sum += count;
            }
            block_start = sum == 0 ? 0 : atomicAdd(groups, sum);
        }
        __syncthreads();
        u32 next = block_start + warp_start[warp];
#pragma unroll
        for (u32 k = 0; k < kItems; ++k) {
            if (entry[k] != kEmpty) {
                const u64 slot = tile * kTile + k * kThreads + threadIdx.x;
                const u32 number = next + __popc(taken[k] & ((1u << lane) - 1u));
                numbers[slot] = number;
                rows[number] = has_row_of ? row_of[slot] : static_cast<u32>(entry[k]);
            }
            next += __popc(taken[k]);
        }
        __syncthreads();
    }
}

#define XLOG_CASE(operation)                                                                     \
    case operation:                                                                              \
        aggregate<operation>(slots, numbers, values, valid, has_valid, low, high, groups, n,     \
                             shared);                                                            \
        break;

// low[g] (and high[g], for 64-bit sums) combined with the values of the rows of group g. A row
// without a slot, or whose bit in `valid` is not set, counts for nothing.
extern "C" __global__ void __launch_bounds__(256)
    xlog_group_aggregate_u32(const u32* __restrict__ slots, const u32* __restrict__ numbers,
                             const u32* __restrict__ values, const u32* __restrict__ valid,
                             u32 has_valid, u32 operation, u64* low, u64* high, u64 groups, u64 n) {
    __shared__ u64 shared[2 * kSharedGroups];
    switch (operation) {
        XLOG_CASE(kCount)
        XLOG_CASE(kSumU32)
        XLOG_CASE(kSumI32)
        XLOG_CASE(kSumF32)
        XLOG_CASE(kMinU32)
        XLOG_CASE(kMaxU32)
        XLOG_CASE(kMinI32)
        XLOG_CASE(kMaxI32)
        XLOG_CASE(kMinF32)
        XLOG_CASE(kMaxF32)
    }
}

extern "C" __global__ void __launch_bounds__(256)
    xlog_group_aggregate_u64(const u32* __restrict__ slots, const u32* __restrict__ numbers,
                             const u64* __restrict__ values, const u32* __restrict__ valid,
                             u32 has_valid, u32 operation, u64* low, u64* high, u64 groups, u64 n) {
    __shared__ u64 shared[2 * kSharedGroups];
    switch (operation) {
        XLOG_CASE(kSumU64)
        XLOG_CASE(kSumI64)
        XLOG_CASE(kSumF64)
        XLOG_CASE(kMinU64)
        XLOG_CASE(kMaxU64)
        XLOG_CASE(kMinI64)
        XLOG_CASE(kMaxI64)
        XLOG_CASE(kMinF64)
        XLOG_CASE(kMaxF64)
    }
}

// low[g] as the value that min and max stand for; sums and counts stay as they are.
extern "C" __global__ void xlog_group_finish(u64* __restrict__ low, u32 operation, u64 groups) {
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 g = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; g < groups;
         g += stride) {
        low[g] = value_of(operation, low[g]);
    }
}
