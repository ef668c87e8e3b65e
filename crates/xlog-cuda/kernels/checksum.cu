// A checksum of a whole buffer that does not depend on how the work was split.
//
// Launch shape: one dimension, any grid and block size, partial warps included. Lengths are 64-bit.
// Aliasing: `sum` must not lie inside `in`; `__restrict__` rests on that.

namespace {

constexpr unsigned int kWarpSize = 32;
constexpr unsigned int kFullWarp = 0xffffffffu;
// A block holds at most 1024 threads.
constexpr unsigned int kMostWarps = 1024 / kWarpSize;

// One output of SplitMix64 for the state x: spreads (index, value) over 64 bits, so that swapped
// or shifted elements change the sum although addition itself commutes.
__device__ __forceinline__ unsigned long long scramble(unsigned long long x) {
    unsigned long long z = x + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

}  // namespace

// *sum += the wrapping sum over i of scramble((i << 32) ^ in[i]).
//
// Adds to what is there: the caller zeroes *sum, or carries a sum on. Wrapping addition is
// associative and commutative, so the atomics leave the same bits whatever order they land in.
extern "C" __global__ void xlog_checksum_u32(const unsigned int* __restrict__ in,
                                             unsigned long long* __restrict__ sum,
                                             unsigned long long n) {
    __shared__ unsigned long long warp_sums[kMostWarps];

    const unsigned long long first =
        static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    unsigned long long mine = 0;
    for (unsigned long long i = first; i < n; i += stride) {
        mine += scramble((i << 32) ^ in[i]);
    }

    // The last warp may be short. Lanes that do not exist must be neither named in the mask nor
    // added: what a shuffle returns for them is undefined.
    const unsigned int lane = threadIdx.x % kWarpSize;
    const unsigned int warp = threadIdx.x / kWarpSize;
    const unsigned int lanes = min(kWarpSize, blockDim.x - warp * kWarpSize);
    const unsigned int mask = lanes == kWarpSize ? kFullWarp : (1u << lanes) - 1u;
    for (unsigned int offset = kWarpSize / 2; offset > 0; offset /= 2) {
        const unsigned long long other = __shfl_down_sync(mask, mine, offset);
        if (lane + offset < lanes) {
            mine += other;
        }
    }
    if (lane == 0) {
        warp_sums[warp] = mine;
    }
    __syncthreads();

    // At most 32 additions in one thread cost less than a second round of shuffles is worth.
    if (threadIdx.x == 0) {
        const unsigned int warps = (blockDim.x + kWarpSize - 1) / kWarpSize;
        unsigned long long block_sum = 0;
        for (unsigned int w = 0; w < warps; ++w) {
            block_sum += warp_sums[w];
        }
        // One atomic per block: per element they would queue up at a single address.
        atomicAdd(sum, block_sum);
    }
}
