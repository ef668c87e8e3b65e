// What the sources of joins have in common with each other and with the Rust side.

namespace {

// Stands for a row that is not there.
constexpr u32 kNone = 0xffffffffu;

// Words of `control`: output rows, whether a build key repeats, build rows whose 32-bit key is all
// ones, the value of that row, rows still to append, probe rows with output, build rows listed.
enum Control : u32 {
    kOutput = 0,
    kRepeats = 1,
    kOnesCount = 2,
    kOnesValue = 3,
    kAppended = 4,
    kMatches = 5,
    kListed = 6,
    kControlWords = 8,
};

enum Kind : u32 { kInner = 0, kLeft = 1, kFull = 2, kSemi = 3, kAnti = 4 };

}  // namespace
