// The states of a model's layers, and their places in a slot.
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
  const char* name;  // the name of the part within its layer
  int width = 0;
};

// The last inputs of a Backend::convolve(), oldest first: fp32 [inputs, channels].
struct ConvolutionState {
  const char* name;
  int inputs = 0;  // taps - 1
  int channels = 0;
};

// The state of one operation of a layer. The backend decides the shape of a recurrence's state; the
// tensors of the recurrence are not needed here. The state of an attention is its cache; its angles
// are not needed here.
using LayerState = std::variant<Recurrence, ShiftState, ConvolutionState, Attention>;

// The states of one layer, in the order in which a slot holds them. There is at most one recurrence
// and one attention, and the names differ. The layers of a model may differ. A layer without memory
// has no states.
using LayerStates = std::vector<LayerState>;

// The name of the part with the sequence's last values.
inline constexpr const char* kRecentPart = "recent";

// A state as the backend keeps it. First come the parts that do not grow with the position, which
// are zeros for an empty sequence. Then come the pages of the caches.
struct StateLayout {
  int64_t state_bytes = 0;       // of one state
  std::vector<StatePart> parts;  // the parts in the order of offsets, which cover all bytes
  std::string numerics;          // the numerics id
  // [layer][state of the layer]: the offset of the state in a slot, in bytes.
  std::vector<std::vector<int64_t>> offsets = {};

  // The last values of the sequence, in the form of RecentRing: i32 [recent] in a separate part.
  // They are not numbers of a layer. In a state file they are in the header.
  int recent = 0;             // how many; 0: none are kept
  int64_t recent_offset = 0;  // bytes from the start of a slot

  int64_t page_bytes = 0;  // of one page, for all layers; 0: there is no cache
  int64_t positions = 0;   // for which the caches have room
  // Bytes before the first page. Their number does not grow with the position.
  int64_t fixed_bytes() const { return state_bytes - pages_of(positions) * page_bytes; }
  // Bytes that are in use after this number of inputs. They are the first bytes of the state.
  int64_t live_bytes(int64_t inputs) const { return fixed_bytes() + pages_of(inputs) * page_bytes; }

  static int64_t pages_of(int64_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
  }
};

// Lays out the states of all layers without gaps, in the forms of `backend`. Parts have names such
// as "layers.0.S". Caches have room for `positions` positions. The part "recent" with the last
// `recent` values follows the layers.
StateLayout lay_out(std::span<const LayerStates> layers, const Backend& backend,
                    const std::string& numerics, int64_t positions, int recent = 0);

// The bytes of all these states as plain fp32, not in the form of any backend. Caches have pages
// for `positions` positions.
int64_t state_bytes_of(std::span<const LayerStates> layers, int64_t positions);

// The bytes that each position takes in the caches. 0: there is no cache.
int64_t position_bytes_of(std::span<const LayerStates> layers);

}  // namespace runnel
