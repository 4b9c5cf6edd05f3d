#include "models/network.h"

#include <string>
#include <utility>

namespace runnel {

std::vector<StatePart> parts_of_layers(std::span<const StatePart> layer_parts, int layers,
                                       int64_t layer_bytes) {
  std::vector<StatePart> parts;
  for (int layer = 0; layer < layers; ++layer) {
    for (StatePart part : layer_parts) {
      part.name = "layers." + std::to_string(layer) + "." + part.name;
      part.offset += layer * layer_bytes;
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

}  // namespace runnel
