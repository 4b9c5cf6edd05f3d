#include "models/state/layout.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

// The parts of a state, at offsets from the start of that state.
std::vector<StatePart> parts_of(const Recurrence& state, const Backend& backend) {
  return backend.state_parts(state);
}
std::vector<StatePart> parts_of(const ShiftState& state, const Backend& /*backend*/) {
  return {{state.name, DType::kF32, {state.width}, 0, 4}};
}
std::vector<StatePart> parts_of(const ConvolutionState& state, const Backend& /*backend*/) {
  return {
      {state.name, DType::kF32, {state.inputs, state.channels}, 0, int64_t{state.channels} * 4}};
}

// Describes the first page. lay_out() sets the number of pages.
std::vector<StatePart> parts_of(const Attention& state, const Backend& /*backend*/) {
  const int64_t heads = state.kv_heads;
  return {{.name = "keys",
           .type = state.stored,
           .shape = {1, heads, state.dk, kPagePositions},
           .paged = true},
          {.name = "values",
           .type = state.stored,
           .shape = {1, heads, kPagePositions, state.dv},
           .offset = state.key_bytes(),
           .paged = true}};
}

int64_t plain_bytes(const Recurrence& state) { return state.state_bytes(); }
int64_t plain_bytes(const ShiftState& state) { return int64_t{state.width} * 4; }
int64_t plain_bytes(const ConvolutionState& state) {
  return int64_t{state.inputs} * state.channels * 4;
}

// Caches are counted in pages instead.
int64_t plain_bytes(const Attention& /*state*/) { return 0; }

int64_t bytes_of(const LayerState& state, const Backend& backend) {
  const auto* const recurrence = std::get_if<Recurrence>(&state);
  if (recurrence != nullptr) return backend.state_bytes(*recurrence);
  return std::visit([](const auto& one) { return plain_bytes(one); }, state);
}

void place_recent(StateLayout& layout, int recent) {
  if (recent == 0) return;
  layout.recent = recent;
  layout.recent_offset = layout.state_bytes;
  layout.parts.push_back({kRecentPart, DType::kI32, {recent}, layout.state_bytes, 4});
  layout.state_bytes += int64_t{recent} * 4;
}

// Moves the parts and offsets of caches, which are relative to the start of a page, to where the
// pages are.
void place_pages(StateLayout& layout, std::span<const LayerStates> layers) {
  for (StatePart& part : layout.parts) {
    if (!part.paged) continue;
    part.shape[0] = StateLayout::pages_of(layout.positions);
    part.offset += layout.state_bytes;
    part.stride = layout.page_bytes;
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t i = 0; i < layers[layer].size(); ++i) {
      if (std::holds_alternative<Attention>(layers[layer][i])) {
        layout.offsets[layer][i] += layout.state_bytes;
      }
    }
  }
  std::ranges::stable_partition(layout.parts, [](const StatePart& part) { return !part.paged; });
  layout.state_bytes += StateLayout::pages_of(layout.positions) * layout.page_bytes;
}

}  // namespace

StateLayout lay_out(std::span<const LayerStates> layers, const Backend& backend,
                    const std::string& numerics, int64_t positions, int recent) {
  StateLayout layout;
  layout.numerics = numerics;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    std::vector<int64_t>& offsets = layout.offsets.emplace_back();
    for (const LayerState& state : layers[layer]) {
      const auto* const attention = std::get_if<Attention>(&state);
      int64_t& end = attention == nullptr ? layout.state_bytes : layout.page_bytes;
      offsets.push_back(end);
      for (StatePart& part :
           std::visit([&](const auto& one) { return parts_of(one, backend); }, state)) {
        part.name = prefix + part.name;
        part.offset += end;
        layout.parts.push_back(std::move(part));
      }
      end += attention == nullptr ? bytes_of(state, backend) : attention->page_bytes();
    }
  }
  if (layout.page_bytes > 0) layout.positions = positions;
  place_recent(layout, recent);
  place_pages(layout, layers);
  return layout;
}

int64_t position_bytes_of(std::span<const LayerStates> layers) {
  int64_t bytes = 0;
  for (const LayerStates& layer : layers) {
    for (const LayerState& state : layer) {
      const auto* const attention = std::get_if<Attention>(&state);
      if (attention != nullptr) bytes += attention->page_bytes() / kPagePositions;
    }
  }
  return bytes;
}

int64_t state_bytes_of(std::span<const LayerStates> layers, int64_t positions) {
  int64_t bytes =
      position_bytes_of(layers) * StateLayout::pages_of(positions) * int64_t{kPagePositions};
  for (const LayerStates& layer : layers) {
    for (const LayerState& state : layer) {
      bytes += std::visit([](const auto& one) { return plain_bytes(one); }, state);
    }
  }
  return bytes;
}

}  // namespace runnel
