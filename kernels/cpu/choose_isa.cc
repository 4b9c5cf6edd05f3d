#include "kernels/cpu/choose_isa.h"

#include "kernels/cpu/machine.h"

namespace runnel::cpu {

IsaChoice choose_isa(std::string_view vendor, const std::function<bool(Isa)>& available,
                     bool tiles_refused) {
  if (available(Isa::kAmx)) return {Isa::kAmx, "the processor has tiles for bf16"};
  const std::string refused =
      tiles_refused ? "; it has tiles for bf16, but the kernel refuses them" : "";
  if (available(Isa::kAvx512Bf16)) {
    // bf16 has twice as many products as fp32 on AMD's processors, half as many on Intel's.
    if (vendor == "AuthenticAMD") {
      return {Isa::kAvx512Bf16, "AMD's instruction for bf16 is faster than fp32" + refused};
    }
    return {Isa::kAvx512,
            "the instruction for bf16 is only known to be faster than fp32 on AMD's "
            "processors" +
                refused};
  }
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (available(isa)) return {isa, "the widest that the processor has" + refused};
  }
  return {Isa::kPortable, vendor.empty() ? "there are no other kernels for this architecture"
                                         : "the processor has neither AVX2 nor AVX-512"};
}

const IsaChoice& best_isa() {
  static const IsaChoice choice =
      choose_isa(processor_vendor(), isa_available, has_tiles() && !may_use_tiles());
  return choice;
}

}  // namespace runnel::cpu
