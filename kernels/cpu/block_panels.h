// Weights in blocks on their way into panels.
#pragma once

#include <cstdint>

#include "kernels/cpu/memory.h"
#include "kernels/view.h"

namespace runnel::cpu {

// Whether products take weights of this type in blocks. Those of other types are widened first.
bool has_block_panels(StoredType type);

// Panels of `panel` outputs each (block_layout.h) of a weight [rows, cols] in blocks, placed in the
// arena. Outputs beyond the last are zeros.
Buffer block_panels(const HostTensor& weight, int panel, Arena& arena);

}  // namespace runnel::cpu
