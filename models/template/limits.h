// The bounds of chat templates. A template comes from the operator, its input from callers.
#pragma once

#include <cstdint>

namespace runnel::jinja {

// Limits of a template, which are checked when it is parsed.
inline constexpr int64_t kMaxSourceBytes = 256 << 10;
inline constexpr int64_t kMaxNodes = 50'000;
inline constexpr int kMaxNesting = 64;  // of blocks, and of expressions within a block

// Limits of one rendering.
inline constexpr int64_t kMaxEvaluations = 5'000'000;
inline constexpr int kMaxMacroDepth = 32;
inline constexpr int64_t kMaxArguments = 1000;   // of a call
inline constexpr int kMaxEvaluationDepth = 512;  // of nodes within nodes, through macros
inline constexpr int kMaxValueDepth = 64;        // of lists, dicts and methods
inline constexpr int64_t kMaxRange = 100'000;
inline constexpr int64_t kMaxOutputBytes = 16 << 20;
inline constexpr int64_t kMaxValueBytes = 16 << 20;  // of all values at the same time, plus
inline constexpr int64_t kValueBytesPerInput = 16;   // this number for each byte of the input

}  // namespace runnel::jinja
