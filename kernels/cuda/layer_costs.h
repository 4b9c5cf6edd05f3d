// The costs by which the whole-model kernel's shape is chosen, and a file that replaces them.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace runnel {

// The constants of cuda::layer_cycles(), in cycles unless the comment says bytes per cycle. They
// decide which shape of clusters computes a batch, and so how fast it is. All shapes compute the
// same bits, so bits do not depend on the costs.
struct LayerCosts {
  int64_t meeting = 700;      // a barrier (launch.h), for a tile of several blocks
  int64_t alone = 50;         // the same for a tile of one block
  int64_t wait = 400;         // for the cluster's other tiles, for each doubling of their number
  int64_t norm = 600;         // a LayerNorm of one row by each warp
  int64_t product = 400;      // a product, without the time to read its weights
  int64_t cache_block = 48;   // bytes per cycle from the cache to one block
  int64_t cache = 4200;       // bytes per cycle from the cache to all blocks
  int64_t memory_block = 40;  // bytes per cycle of states that one block reads and writes
  int64_t memory = 2400;      // bytes per cycle of states that all blocks read and write

  bool operator==(const LayerCosts&) const = default;
};

// Reads costs from a file with a JSON object of the names above, such as {"meeting": 744,
// "cache_block": 28}. bench/gpu/report.py writes such a file. A cost that the file does not name
// keeps its default. Errors are those of read_file() and parse_json(), and INVALID_ARGUMENT for a
// name or a number that is wrong.
Result<LayerCosts> read_layer_costs(const std::string& path);

}  // namespace runnel
