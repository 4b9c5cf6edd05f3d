// What the layers of a model keep of the past, and where a slot holds it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/state_part.h"

namespace runnel {

// The last input of a Backend::shift(): fp32 [width].
struct ShiftState {
  const char* name;  // of the part, within its layer
  int width = 0;
};

// The last inputs of a Backend::convolve(), oldest first: fp32 [inputs, channels].
struct ConvolutionState {
  const char* name;
  int inputs = 0;  // taps - 1
  int channels = 0;
};

// The state of one operation of a layer. That of a recurrence is the backend's to shape; its terms
// need no tensors here. An attention's state is its cache, for which it needs no angles here.
using LayerState = std::variant<Recurrence, ShiftState, ConvolutionState, Attention>;

// The states of one layer, in the order in which a slot holds them: at most one recurrence and one
// attention, and names that differ. Layers of a model may differ; one without memory has no states.
using LayerStates = std::vector<LayerState>;

// The name of the part that holds the last values.
inline constexpr const char* kRecentPart = "recent";

// A state as the backend keeps it: what all positions share, of an empty sequence zeros, and then
// the pages of the caches, page after page.
struct StateLayout {
  int64_t state_bytes = 0;       // of one state
  std::vector<StatePart> parts;  // what they are, in the order of offsets; together all of them
  std::string numerics;          // all that decides the bits
  // [layer][state of the layer]: bytes from the start of a slot to where the operation finds it.
  std::vector<std::vector<int64_t>> offsets = {};

  // The last values of the sequence, as RecentRing has them: i32 [recent] in a part of its own.
  // They have no numbers of a layer, and travel in the header of a state file.
  int recent = 0;             // how many; 0: none are kept
  int64_t recent_offset = 0;  // bytes from the start of a slot

  int64_t page_bytes = 0;  // of all layers; 0: there is no cache
  int64_t positions = 0;   // that the caches have room for
  // Bytes before the first page: they do not grow with the position.
  int64_t fixed_bytes() const { return state_bytes - pages_of(positions) * page_bytes; }
  // Bytes that matter after so many inputs, the first ones.
  int64_t live_bytes(int64_t inputs) const { return fixed_bytes() + pages_of(inputs) * page_bytes; }

  static int64_t pages_of(int64_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
  }
};

// Layer after layer without gaps, in the forms of `backend`. Parts are named "layers.0.S". Caches
// have room for `positions` positions. After the layers come the last `recent` values, as part
// "recent".
StateLayout lay_out(std::span<const LayerStates> layers, const Backend& backend,
                    const std::string& numerics, int64_t positions, int recent = 0);

// Bytes of all these states without a form of any backend: fp32, but for caches, which have pages
// for `positions`.
int64_t state_bytes_of(std::span<const LayerStates> layers, int64_t positions);

// Bytes that each position takes in the caches; 0: there is none.
int64_t position_bytes_of(std::span<const LayerStates> layers);

}  // namespace runnel
