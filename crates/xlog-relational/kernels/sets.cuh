// What set operations keep, for whichever kernel counts.

#pragma once

namespace {

// How often a row is kept that is there `left` and `right` times. The numbers are those of the Rust
// side.
enum Operation : unsigned int {
    kIntersect = 0,
    kIntersectAll = 1,
    kExcept = 2,
    kExceptAll = 3,
};

__device__ __forceinline__ unsigned int kept(unsigned int operation, unsigned int left,
                                             unsigned int right) {
    switch (operation) {
        case kIntersect:
            return left != 0 && right != 0 ? 1 : 0;
        case kIntersectAll:
            return min(left, right);
        case kExcept:
            return left != 0 && right == 0 ? 1 : 0;
        default:
            return left > right ? left - right : 0;
    }
}

}  // namespace
