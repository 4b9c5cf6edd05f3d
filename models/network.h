// One step of a network, written in backend operations. It is the only part of a model that a
// family implements; recurrent_model.h does the rest.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/model.h"

namespace runnel {

// Consecutive rows of a batch in one step, with their part of each array.
struct Run {
  Backend& lane;  // runs the operations
  Rows rows;
  int first;         // the index of these rows' first input in the batch
  int inputs;        // of these rows
  int read;          // how many of the first inputs need the head's output
  View values;       // i32 [1, inputs]; kNoValue means the pending value of the row's slot
  Control* control;  // [slots]
  States states;     // the slots' states, whole
  Recent recent;     // for the values that these rows sample
  View head;         // out: fp32 [read, Head::width()]

  // This run's rows of a matrix that has one row per input of the batch.
  View of(View matrix) const { return matrix.slice(first, inputs); }
  // The slots' states from byte `offset` on.
  States states_at(int64_t offset) const { return {states.base, states.slot_bytes, offset}; }
  // The cache of a layer. `offset` is where the layer's part of the first page begins.
  Cache cache_at(int64_t offset, const StateLayout& layout) const {
    return {states_at(offset), layout.page_bytes, layout.positions};
  }
};

// The parts from which a network is made: the bundle's weights, which are packed for the backend,
// and the limits, for which activations are allocated. The backend must outlive the network and
// support its recurrences.
struct NetworkParts {
  const Bundle& bundle;
  Backend& backend;
  const StateLayout& layout;  // of the states of the family's layers
  const ModelLimits& limits;
  Precision precision;        // of the weights of the layers
  DType cache = DType::kF32;  // Attention::stored
};

class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  // Consumes the run's inputs: advances the states and fills the head. It may be called for several
  // runs at the same time, and more than once for the same run (Backend::run).
  virtual void forward(const Run& run) const = 0;

  // Whether steps() can be called. All its rows must sample.
  virtual bool fused() const { return false; }

  // Advances rows by `steps` steps, each of forward() and Backend::sample(), with the same bits.
  // Each row has one input, the pending value of its slot. Step s writes row r's value to to.from(s
  // * stride + r). Only if fused().
  virtual void steps(const Run& /*run*/, SampledTo /*to*/, int64_t /*stride*/,
                     int /*steps*/) const {}
};

}  // namespace runnel
