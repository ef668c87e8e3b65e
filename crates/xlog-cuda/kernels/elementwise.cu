// Element-by-element kernels: each output element depends only on the inputs at its own index.
//
// Launch shape: one dimension, any grid and block size. Every kernel walks a grid-stride loop, so
// the result depends on the length alone. Lengths are 64-bit: a card holds more than 2^32 elements.
//
// Aliasing: the caller promises that the pointers of one launch do not overlap. `__restrict__`
// rests on that promise; it lets inputs be read through the read-only cache.

namespace {

// The first element of the calling thread. Widened before the multiplication: the product of grid
// and block sizes passes 2^32.
__device__ __forceinline__ unsigned long long first_element() {
    return static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// How far a thread steps from one of its elements to the next.
__device__ __forceinline__ unsigned long long grid_stride() {
    return static_cast<unsigned long long>(gridDim.x) * blockDim.x;
}

// The 32-bit finalizer of MurmurHash3: a bijection in which every input bit reaches every output
// bit, so that two steps of a chain run in the wrong order cannot cancel out.
__device__ __forceinline__ unsigned int mix(unsigned int h) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    return h;
}

}  // namespace

// out[i] = value
extern "C" __global__ void xlog_fill_u32(unsigned int* __restrict__ out, unsigned int value,
                                         unsigned long long n) {
    for (unsigned long long i = first_element(); i < n; i += grid_stride()) {
        out[i] = value;
    }
}

// out[i] = in[i]
extern "C" __global__ void xlog_copy_u32(const unsigned int* __restrict__ in,
                                         unsigned int* __restrict__ out, unsigned long long n) {
    for (unsigned long long i = first_element(); i < n; i += grid_stride()) {
        out[i] = in[i];
    }
}

// y[i] = a * x[i] + y[i], with the product rounded before the addition.
//
// Plain `a * x + y` may be contracted into one fused multiply-add, which rounds once. The
// intrinsics are never contracted, whatever the flags, so every result that is not a NaN equals
// the host's bit for bit. (A NaN is a NaN on both; its payload is the hardware's choice.)
extern "C" __global__ void xlog_axpy_f32(float a, const float* __restrict__ x,
                                         float* __restrict__ y, unsigned long long n) {
    for (unsigned long long i = first_element(); i < n; i += grid_stride()) {
        y[i] = __fadd_rn(__fmul_rn(a, x[i]), y[i]);
    }
}

// data[i] += amount, wrapping.
extern "C" __global__ void xlog_increment_u32(unsigned int* __restrict__ data, unsigned int amount,
                                              unsigned long long n) {
    for (unsigned long long i = first_element(); i < n; i += grid_stride()) {
        data[i] += amount;
    }
}

// data[i] = mix(data[i] ^ mix(in[i] + salt)), the addition wrapping.
//
// Steps with different salts do not commute: a chain of them ends in the right value only if they
// ran in the right order, each on what the one before it had written.
extern "C" __global__ void xlog_mix_u32(const unsigned int* __restrict__ in,
                                        unsigned int* __restrict__ data, unsigned int salt,
                                        unsigned long long n) {
    for (unsigned long long i = first_element(); i < n; i += grid_stride()) {
        data[i] = mix(data[i] ^ mix(in[i] + salt));
    }
}

// out[i] = mix(a[i] ^ mix(b[i] + salt)) and data[i] = mix(data[i] ^ out[i]), the addition wrapping:
// one launch with every kind of access.
extern "C" __global__ void xlog_blend_u32(const unsigned int* __restrict__ a,
                                          const unsigned int* __restrict__ b,
                                          unsigned int* __restrict__ data,
                                          unsigned int* __restrict__ out, unsigned int salt,
                                          unsigned long long n) {
    for (unsigned long long i = first_element(); i < n; i += grid_stride()) {
        const unsigned int blended = mix(a[i] ^ mix(b[i] + salt));
        data[i] = mix(data[i] ^ blended);
        out[i] = blended;
    }
}
