// What the tables of hash_table.cu and hash_join.cu have in common: a key inserted by one is looked
// up by the other, so both must address them alike.

namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 kThreads = 256;
constexpr u32 kItems = 4;
constexpr u32 kTile = kThreads * kItems;
constexpr u64 kEmpty = ~0ull;
// Where a partitioned side keeps its number of rows: behind the counts of its parts.
constexpr u32 kParts = 256;
constexpr u32 kUsed = kParts;

// MurmurHash3's finalizers: bijections, so distinct keys differ somewhere in their hashes.
__device__ __forceinline__ u32 hash_word(u32 h) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16);
}

__device__ __forceinline__ u64 hash_long(u64 h, u32 extra) {
    h ^= static_cast<u64>(extra) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
}

__device__ __forceinline__ u64 slot_of(u32 hash, u64 capacity) {
    return (static_cast<u64>(hash) * capacity) >> 32;
}

__device__ __forceinline__ bool bit_of(const u32* words, u64 index) {
    return (words[index >> 5] >> (index & 31)) & 1u;
}

}  // namespace
