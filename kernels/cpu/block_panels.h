// Packs weights in blocks into panels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/view.h"

namespace runnel::cpu {

// The bytes of a panel of `panel` outputs (block_layout.h) of a weight [rows, cols] in blocks.
int64_t block_panel_bytes(const HostTensor& weight, int panel);

// Writes panel `index` of the weight into zeroed memory. Outputs beyond the last one stay zeros.
void pack_block_panel(const HostTensor& weight, int panel, int64_t index, std::byte* to);

}  // namespace runnel::cpu
