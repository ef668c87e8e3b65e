// Kernels for tests and benchmarks of the machinery around a launch: a gate that holds a stream
// until the test opens it, the signal that opens it, and launches that cost next to nothing.
//
// Launch shape: one block of one thread. Further threads do nothing, so a wrong shape cannot turn
// into a wrong result.

namespace {

__device__ __forceinline__ bool is_first_thread() {
    return blockIdx.x == 0 && threadIdx.x == 0;
}

// Nanoseconds on the GPU's wall clock. `volatile`: each call must read the register anew.
__device__ __forceinline__ unsigned long long now() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

// Reads a word that another processor (the host, another stream, another GPU) writes. Acquire at
// system scope: no cache may answer for it, and what was written before the flag is seen after it.
__device__ __forceinline__ unsigned int load_system(const unsigned int* flag) {
    unsigned int value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

}  // namespace

// Returns when *flag is not zero, or after max_nanoseconds: a test that never opens its gate fails
// on what it then sees, and does not hang the GPU for everyone.
//
// `flag` is page-locked host memory, or device memory that xlog_signal writes. It is not
// `__restrict__`: somebody else writes it while this kernel runs.
extern "C" __global__ void xlog_gate(const unsigned int* flag, unsigned long long max_nanoseconds) {
    if (!is_first_thread()) {
        return;
    }
    const unsigned long long start = now();
    while (load_system(flag) == 0 && now() - start < max_nanoseconds) {
#if __CUDA_ARCH__ >= 700
        // Leaves the bus to the others; short beside the time one poll of host memory takes.
        __nanosleep(200);
#endif
    }
}

// *flag = value, seen by the host and by every other stream.
//
// The fence before it publishes what this thread knows of earlier writes together with the flag;
// the one after it keeps the store from lingering behind the end of the kernel.
extern "C" __global__ void xlog_signal(unsigned int* flag, unsigned int value) {
    if (!is_first_thread()) {
        return;
    }
    __threadfence_system();
    asm volatile("st.relaxed.sys.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
    __threadfence_system();
}

// xlog_empty_N takes N pointers and does nothing: what is left is the price of the launch and of
// passing N arguments.

extern "C" __global__ void xlog_empty_1(unsigned int* p0) {}

extern "C" __global__ void xlog_empty_4(unsigned int* p0, unsigned int* p1, unsigned int* p2,
                                        unsigned int* p3) {}

extern "C" __global__ void xlog_empty_8(unsigned int* p0, unsigned int* p1, unsigned int* p2,
                                        unsigned int* p3, unsigned int* p4, unsigned int* p5,
                                        unsigned int* p6, unsigned int* p7) {}

// xlog_touch_N adds amount (wrapping) to element 0 of each of its N pointers, so that a benchmark
// can tell from the totals that every launch ran.
//
// A plain read and write on purpose: two launches that should have been ordered and were not lose
// an addition, where an atomic would hide it. The pointers of one launch must be distinct; all are
// read before the first is written, so that N pointers cost one trip to memory and not N.

extern "C" __global__ void xlog_touch_1(unsigned int* __restrict__ p0, unsigned int amount) {
    if (!is_first_thread()) {
        return;
    }
    *p0 += amount;
}

extern "C" __global__ void xlog_touch_4(unsigned int* __restrict__ p0,
                                        unsigned int* __restrict__ p1,
                                        unsigned int* __restrict__ p2,
                                        unsigned int* __restrict__ p3, unsigned int amount) {
    if (!is_first_thread()) {
        return;
    }
    const unsigned int v0 = *p0;
    const unsigned int v1 = *p1;
    const unsigned int v2 = *p2;
    const unsigned int v3 = *p3;
    *p0 = v0 + amount;
    *p1 = v1 + amount;
    *p2 = v2 + amount;
    *p3 = v3 + amount;
}

extern "C" __global__ void xlog_touch_8(unsigned int* __restrict__ p0,
                                        unsigned int* __restrict__ p1,
                                        unsigned int* __restrict__ p2,
                                        unsigned int* __restrict__ p3,
                                        unsigned int* __restrict__ p4,
                                        unsigned int* __restrict__ p5,
                                        unsigned int* __restrict__ p6,
                                        unsigned int* __restrict__ p7, unsigned int amount) {
    if (!is_first_thread()) {
        return;
    }
    const unsigned int v0 = *p0;
    const unsigned int v1 = *p1;
    const unsigned int v2 = *p2;
    const unsigned int v3 = *p3;
    const unsigned int v4 = *p4;
    const unsigned int v5 = *p5;
    const unsigned int v6 = *p6;
    const unsigned int v7 = *p7;
    *p0 = v0 + amount;
    *p1 = v1 + amount;
    *p2 = v2 + amount;
    *p3 = v3 + amount;
    *p4 = v4 + amount;
    *p5 = v5 + amount;
    *p6 = v6 + amount;
    *p7 = v7 + amount;
}
