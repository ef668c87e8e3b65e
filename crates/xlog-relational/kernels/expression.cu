// Runs a small stack program for every row of a table: one launch for a whole expression, and no
// column in between. The program's encoding is written down in `src/expr/program.rs`; the numbers
// here repeat it.
//
// Launch shape: one dimension, any grid, blocks of a multiple of 32 threads. A warp works on 128
// neighbouring rows at a time, four for each thread, so that every load is of 32 neighbours and
// every word of the result is one ballot. The program is the same for all rows, so no branch on it
// diverges. Row counts are 64-bit.
// Aliasing: outputs overlap no input. Slots that the program does not name are never read.

namespace {

using u64 = unsigned long long;
using i64 = long long;

constexpr unsigned int kFullWarp = 0xffffffffu;
constexpr int kMostSlots = 8;
constexpr int kMostDepth = 16;
constexpr int kRows = 4;
// Programs up to this length are read from shared memory.
constexpr int kSharedWords = 256;

enum Opcode : unsigned char {
    kLoad = 0,
    kConstant = 1,
    kNull = 2,
    kToFloat = 3,
    kToSigned = 4,
    kCompare = 5,
    kAnd = 6,
    kOr = 7,
    kNot = 8,
    kIsNull = 9,
    kIn = 10,
    kAdd = 11,
    kSubtract = 12,
    kMultiply = 13,
    kDivide = 14,
    kRemainder = 15,
    kNegate = 16,
    kRoundToF32 = 17,
    kLookup = 18,
};

enum Kind : unsigned char { kU64 = 0, kI64 = 1, kF64 = 2, kMixed = 3 };

enum LoadKind : unsigned char {
    kByte = 0,
    kWord = 1,
    kSignedWord = 2,
    kFloatWord = 3,
    kLong = 4,
};

__device__ __forceinline__ double real(u64 bits) {
    return __longlong_as_double(static_cast<i64>(bits));
}

__device__ __forceinline__ u64 bits_of(double value) {
    return static_cast<u64>(__double_as_longlong(value));
}

// A NaN that comes out of a calculation is always the same one.
__device__ __forceinline__ u64 calculated(double value) {
    return value != value ? 0x7ff8000000000000ull : bits_of(value);
}

// Between four and eight bytes a NaN keeps its sign and its upper bits, which the device's own
// conversions lose.
__device__ __forceinline__ u64 widened(float value) {
    if (value != value) {
        const u64 bits = __float_as_uint(value);
        return (bits & 0x80000000u) << 32 | 0x7ff8000000000000ull | (bits & 0x3fffffu) << 29;
    }
    return bits_of(static_cast<double>(value));
}

__device__ __forceinline__ unsigned int narrowed(double value) {
    if (value != value) {
        const u64 bits = bits_of(value);
        const unsigned int sign = static_cast<unsigned int>(bits >> 32) & 0x80000000u;
        return sign | 0x7fc00000u | (static_cast<unsigned int>(bits >> 29) & 0x3fffffu);
    }
    return __float_as_uint(__double2float_rn(value));
}

// One zero and one NaN.
__device__ __forceinline__ u64 normal_bits(double value) {
    return value != value ? 0x7ff8000000000000ull : bits_of(__dadd_rn(value, 0.0));
}

__device__ __forceinline__ bool is_less(unsigned char kind, u64 a, u64 b) {
    switch (kind) {
        case kU64:
            return a < b;
        case kI64:
            return static_cast<i64>(a) < static_cast<i64>(b);
        default: {
            // NaN is above every number.
            double x = real(a), y = real(b);
            return x < y || (x == x && y != y);
        }
    }
}

__device__ __forceinline__ bool is_equal(unsigned char kind, u64 a, u64 b) {
    if (kind != kF64) {
        return a == b;
    }
    double x = real(a), y = real(b);
    return x == y || (x != x && y != y);
}

__device__ __forceinline__ bool compare(unsigned char kind, unsigned int comparison, u64 a, u64 b) {
    bool less, greater, equal;
    if (kind == kMixed) {
        // Signed on the left: a negative one is below every right side.
        bool negative = static_cast<i64>(a) < 0;
        less = negative || a < b;
        greater = !negative && a > b;
        equal = !negative && a == b;
    } else {
        less = is_less(kind, a, b);
        greater = is_less(kind, b, a);
        equal = is_equal(kind, a, b);
    }
    switch (comparison) {
        case 0:
            return equal;
        case 1:
            return !equal;
        case 2:
            return less;
        case 3:
            return !greater;
        case 4:
            return greater;
        default:
            return !less;
    }
}

// a op b in the kind; sets `overflows`, or clears `there` for an integer divided by zero.
__device__ __forceinline__ u64 calculate_here(unsigned char opcode, unsigned char kind, u64 a,
                                              u64 b, bool& overflows, bool& there) {
    if (kind == kF64) {
        double x = real(a), y = real(b);
        switch (opcode) {
            case kAdd:
                return calculated(__dadd_rn(x, y));
            case kSubtract:
                return calculated(__dsub_rn(x, y));
            case kMultiply:
                return calculated(__dmul_rn(x, y));
            case kDivide:
                return calculated(__ddiv_rn(x, y));
            default:
                return calculated(fmod(x, y));
        }
    }
    bool is_signed = kind == kI64;
    switch (opcode) {
        case kAdd: {
            u64 sum = a + b;
            overflows = is_signed ? (((a ^ sum) & (b ^ sum)) >> 63) != 0 : sum < a;
            return sum;
        }
        case kSubtract: {
            // Of two unsigned numbers too, the difference is signed.
            u64 difference = a - b;
            overflows = is_signed ? (((a ^ b) & (a ^ difference)) >> 63) != 0
                                  : (static_cast<i64>(difference) < 0) != (a < b);
            return difference;
        }
        case kMultiply: {
            u64 product = a * b;
            overflows = is_signed
                            ? __mul64hi(static_cast<i64>(a), static_cast<i64>(b)) !=
                                  (static_cast<i64>(product) >> 63)
                            : __umul64hi(a, b) != 0;
            return product;
        }
        default:
            break;
    }
    if (b == 0) {
        there = false;
        return 0;
    }
    bool divides = opcode == kDivide;
    if (!is_signed) {
        return divides ? a / b : a % b;
    }
    // The one quotient that does not fit, and whose remainder is 0 all the same.
    if (b == ~0ull) {
        overflows = divides && a == 0x8000000000000000ull;
        return divides ? 0ull - a : 0ull;
    }
    i64 x = static_cast<i64>(a), y = static_cast<i64>(b);
    return static_cast<u64>(divides ? x / y : x % y);
}

struct Calculated {
    u64 bits;
    bool overflows;
    bool there;
};

// Out of line: divisions and remainders are long, and five kernels of four rows each would hold them
// 20 times, which the driver has to translate when the module is loaded.
__device__ __noinline__ Calculated calculate(unsigned char opcode, unsigned char kind, u64 a,
                                             u64 b) {
    Calculated result{0, false, true};
    result.bits = calculate_here(opcode, kind, a, b, result.overflows, result.there);
    return result;
}

__device__ __noinline__ bool contains(const u64* words, unsigned int count, u64 wanted) {
    unsigned int low = 0, high = count;
    while (low < high) {
        unsigned int middle = low + (high - low) / 2;
        if (words[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && words[low] == wanted;
}

struct Arguments {
    const u64* program;
    u64 program_length;
    const unsigned char* slots[kMostSlots];
    const unsigned char* validities[kMostSlots];
    unsigned int nullable;
    u64 n;
    unsigned int* overflow;
};

// Four rows of one stack entry: their bits, and one bit for each that is there.
struct Entry {
    u64 bits[kRows];
    unsigned int there;
};

constexpr unsigned int kAllThere = (1u << kRows) - 1;

__device__ __forceinline__ Entry load(const unsigned char* slot, const unsigned char* validity,
                                      bool nullable, unsigned char kind, u64 base,
                                      unsigned int lane, u64 n) {
    Entry entry;
    entry.there = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        u64 row = base + r * 32 + lane;
        entry.bits[r] = 0;
        if (row >= n) {
            continue;
        }
        switch (kind) {
            case kByte:
                entry.bits[r] = slot[row];
                break;
            case kWord:
                entry.bits[r] = reinterpret_cast<const unsigned int*>(slot)[row];
                break;
            case kSignedWord:
                entry.bits[r] =
                    static_cast<u64>(static_cast<i64>(reinterpret_cast<const int*>(slot)[row]));
                break;
            case kFloatWord:
                entry.bits[r] = widened(reinterpret_cast<const float*>(slot)[row]);
                break;
            default:
                entry.bits[r] = reinterpret_cast<const u64*>(slot)[row];
                break;
        }
        unsigned int there = 1;
        if (nullable) {
            // 32 neighbouring rows share a word, and a base is a multiple of 128.
            there = reinterpret_cast<const unsigned int*>(validity)[base / 32 + r] >> lane & 1;
        }
        entry.there |= there << r;
    }
    return entry;
}

template <typename Store>
__device__ __forceinline__ void interpret(const Arguments& arguments, Store store) {
    __shared__ const unsigned char* slots[kMostSlots];
    __shared__ const unsigned char* validities[kMostSlots];
    __shared__ u64 shared_program[kSharedWords];
    // Filled by all threads in turn: with fixed places, since parameters have no addresses.
#pragma unroll
    for (int slot = 0; slot < kMostSlots; ++slot) {
        if (threadIdx.x == slot) {
            slots[slot] = arguments.slots[slot];
            validities[slot] = arguments.validities[slot];
        }
    }
    const u64 length = arguments.program_length;
    const bool fits = length <= kSharedWords;
    for (u64 i = threadIdx.x; fits && i < length; i += blockDim.x) {
        shared_program[i] = arguments.program[i];
    }
    __syncthreads();
    const u64* program = fits ? shared_program : arguments.program;

    const u64 n = arguments.n;
    const unsigned int lane = threadIdx.x % 32;
    const u64 warp = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u64 warps = static_cast<u64>(gridDim.x) * blockDim.x / 32;
    unsigned int overflowed = 0;

    for (u64 base = warp * 32 * kRows; base < n; base += warps * 32 * kRows) {
        // The topmost entry is in registers, the others below it in local memory.
        Entry stack[kMostDepth];
        Entry top;
        top.there = 0;
        int depth = 0;
        for (u64 at = 0; at < length; ++at) {
            const u64 word = program[at];
            const unsigned char opcode = static_cast<unsigned char>(word);
            const unsigned char kind = static_cast<unsigned char>(word >> 8);
            const unsigned int argument = static_cast<unsigned int>(word >> 32);
            if (opcode <= kNull) {
                if (depth > 0) {
                    stack[depth - 1] = top;
                }
                ++depth;
            }
            switch (opcode) {
                case kLoad:
                    top = load(slots[argument], validities[argument],
                               (arguments.nullable >> argument & 1) != 0, kind, base, lane, n);
                    break;
                case kConstant: {
                    const u64 value = program[++at];
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        top.bits[r] = value;
                    }
                    top.there = kAllThere;
                    break;
                }
                case kNull:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        top.bits[r] = 0;
                    }
                    top.there = 0;
                    break;
                case kToFloat:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        top.bits[r] = bits_of(kind == kI64
                                                  ? __ll2double_rn(static_cast<i64>(top.bits[r]))
                                                  : __ull2double_rn(top.bits[r]));
                    }
                    break;
                case kToSigned:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        if (top.bits[r] >> 63 && top.there >> r & 1) {
                            overflowed |= 1u << kToSigned;
                        }
                    }
                    break;
                case kNot:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        top.bits[r] = top.bits[r] == 0;
                    }
                    break;
                case kIsNull:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        top.bits[r] = (top.there >> r & 1) == 0;
                    }
                    top.there = kAllThere;
                    break;
                case kIn: {
                    const u64* words = program + at + 1;
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        u64 wanted = kind & 2 ? normal_bits(real(top.bits[r])) : top.bits[r];
                        bool found = contains(words, argument, wanted);
                        top.bits[r] = found;
                        if (!found && kind & 1) {
                            top.there &= ~(1u << r);
                        }
                    }
                    at += argument;
                    break;
                }
                case kNegate:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        u64 value = top.bits[r];
                        const u64 lowest = 0x8000000000000000ull;
                        if (kind == kF64) {
                            top.bits[r] = value ^ lowest;
                            continue;
                        }
                        bool overflows = kind == kI64 ? value == lowest : value > lowest;
                        if (overflows && top.there >> r & 1) {
                            overflowed |= 1u << kNegate;
                        }
                        top.bits[r] = 0ull - value;
                    }
                    break;
                case kRoundToF32:
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        double value = real(top.bits[r]);
                        top.bits[r] = widened(__uint_as_float(narrowed(value)));
                    }
                    break;
                case kLookup: {
                    const unsigned int* table =
                        reinterpret_cast<const unsigned int*>(slots[argument]);
                    // The next word is the table's length, for the twin of this kernel.
                    ++at;
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        // What stands in a missing row leads nowhere.
                        top.bits[r] = top.there >> r & 1 ? table[top.bits[r]] : 0;
                    }
                    break;
                }
                default: {
                    // Two in, one out.
                    const Entry left = stack[depth - 2];
                    --depth;
                    if (opcode == kAnd || opcode == kOr) {
                        const bool decisive = opcode == kOr;
                        unsigned int decided = 0;
#pragma unroll
                        for (int r = 0; r < kRows; ++r) {
                            // One side that is there can decide alone.
                            bool by_left = (left.bits[r] != 0) == decisive && left.there >> r & 1;
                            bool by_right = (top.bits[r] != 0) == decisive && top.there >> r & 1;
                            bool now = by_left || by_right;
                            decided |= static_cast<unsigned int>(now) << r;
                            top.bits[r] = now == decisive;
                        }
                        top.there = (left.there & top.there) | decided;
                        break;
                    }
                    top.there &= left.there;
#pragma unroll
                    for (int r = 0; r < kRows; ++r) {
                        if (opcode == kCompare) {
                            top.bits[r] = compare(kind, argument, left.bits[r], top.bits[r]);
                            continue;
                        }
                        Calculated result = calculate(opcode, kind, left.bits[r], top.bits[r]);
                        top.bits[r] = result.bits;
                        if (!result.there) {
                            top.there &= ~(1u << r);
                        }
                        if (result.overflows && top.there >> r & 1) {
                            overflowed |= 1u << opcode;
                        }
                    }
                    break;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            u64 row = base + r * 32 + lane;
            bool there = row < n && (top.there >> r & 1) != 0;
            store(row, row < n, top.bits[r], there, lane);
        }
    }
    if (overflowed != 0) {
        atomicOr(arguments.overflow, overflowed);
    }
}

// Writes one word of bits for the 32 rows of a warp; the first of them is in `n` if any is.
__device__ __forceinline__ void store_bits(unsigned int* words, u64 row, bool in_range, bool bit,
                                           unsigned int lane) {
    unsigned int word = __ballot_sync(kFullWarp, bit);
    if (lane == 0 && in_range) {
        words[row / 32] = word;
    }
}

}  // namespace

#define XLOG_EXPRESSION_PARAMETERS                                                              \
    const u64 *program, u64 program_length, const unsigned char *slot0,                         \
        const unsigned char *slot1, const unsigned char *slot2, const unsigned char *slot3,     \
        const unsigned char *slot4, const unsigned char *slot5, const unsigned char *slot6,     \
        const unsigned char *slot7, const unsigned char *validity0,                             \
        const unsigned char *validity1, const unsigned char *validity2,                         \
        const unsigned char *validity3, const unsigned char *validity4,                         \
        const unsigned char *validity5, const unsigned char *validity6,                         \
        const unsigned char *validity7, unsigned int nullable, u64 n, unsigned int *overflow

#define XLOG_EXPRESSION_ARGUMENTS                                                               \
    Arguments {                                                                                 \
        program, program_length, {slot0, slot1, slot2, slot3, slot4, slot5, slot6, slot7},      \
            {validity0, validity1, validity2, validity3, validity4, validity5, validity6,       \
             validity7},                                                                        \
            nullable, n, overflow                                                               \
    }

// Bit i % 32 of word i / 32 of `mask`: whether the program leaves true for row i.
extern "C" __global__ void xlog_expression_predicate(XLOG_EXPRESSION_PARAMETERS,
                                                     unsigned int* mask) {
    interpret(XLOG_EXPRESSION_ARGUMENTS,
              [=](u64 row, bool in_range, u64 bits, bool there, unsigned int lane) {
                  store_bits(mask, row, in_range, there && bits != 0, lane);
              });
}

#define XLOG_EXPRESSION_STORE(name, type, convert)                                              \
    extern "C" __global__ void name(XLOG_EXPRESSION_PARAMETERS, type* values,                   \
                                    unsigned int* validity) {                                   \
        interpret(XLOG_EXPRESSION_ARGUMENTS,                                                    \
                  [=](u64 row, bool in_range, u64 bits, bool there, unsigned int lane) {        \
                      if (in_range) {                                                           \
                          values[row] = convert;                                                \
                      }                                                                         \
                      store_bits(validity, row, in_range, there, lane);                         \
                  });                                                                           \
    }

// values[i] is what the program leaves for row i; bit i of `validity`, whether it is there.
XLOG_EXPRESSION_STORE(xlog_expression_bytes, unsigned char, static_cast<unsigned char>(bits))
XLOG_EXPRESSION_STORE(xlog_expression_words, unsigned int, static_cast<unsigned int>(bits))
XLOG_EXPRESSION_STORE(xlog_expression_float_words, unsigned int, narrowed(real(bits)))
XLOG_EXPRESSION_STORE(xlog_expression_longs, u64, bits)
