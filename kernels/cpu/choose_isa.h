// Which instruction set serves best on this machine, and why.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kernels/cpu/cpu_backend.h"

namespace runnel::cpu {

struct IsaChoice {
  Isa isa;
  std::string why;  // one line
};

// By what processors are known to do well, never by a measurement, which noise would turn over.
// `vendor` as the processor names it ("AuthenticAMD"); `available`: what the machine has;
// `tiles_refused`: the processor has tiles, and the kernel does not let this process use them.
IsaChoice choose_isa(std::string_view vendor, const std::function<bool(Isa)>& available,
                     bool tiles_refused);

// The choice for this machine, made once.
const IsaChoice& best_isa();

}  // namespace runnel::cpu
