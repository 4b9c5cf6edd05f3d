// Chooses the best instruction set for this machine, and says why.
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

// Chooses by what is known about processors, not by measuring, because noise could change the
// result.
// - `vendor`: as the processor reports it ("AuthenticAMD").
// - `available`: whether the machine has an instruction set.
// - `tiles_refused`: the processor has tiles, but the kernel does not let this process use them.
IsaChoice choose_isa(std::string_view vendor, const std::function<bool(Isa)>& available,
                     bool tiles_refused);

// The choice for this machine, made once.
const IsaChoice& best_isa();

}  // namespace runnel::cpu
