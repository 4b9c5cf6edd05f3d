// Names of instruction sets and precisions in tests, and how GoogleTest prints them.
#pragma once

#include <ostream>

#include "kernels/cpu/cpu_backend.h"

namespace runnel {

inline const char* precision_name(Precision precision) {
  constexpr const char* kNames[] = {"Fp32", "Bf16", "Int8", "Split", "Blocks"};
  return kNames[static_cast<int>(precision)];
}

inline void PrintTo(Isa isa, std::ostream* out) { *out << isa_name(isa); }
inline void PrintTo(Precision precision, std::ostream* out) { *out << precision_name(precision); }

}  // namespace runnel
