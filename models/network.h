// One step of a network, written in backend operations: all that a family of models brings to
// recurrent_model.h, which does the rest.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/model.h"

namespace runnel {

// Consecutive rows of a batch in one step, with their share of everything.
struct Run {
  Backend& lane;  // runs the operations
  Rows rows;
  int first;         // input of the batch that rows begin with
  int inputs;        // of these rows
  int read;          // inputs whose head is wanted, the first ones
  View values;       // i32 [1, inputs]; kNoValue stands for the pending value of the row's slot
  Control* control;  // [slots]
  States states;     // the slots' states, whole
  Recent recent;     // for the values that these rows sample
  View head;         // out: fp32 [read, Head::width()]

  // This run's rows of a matrix that has one row per input of the batch.
  View of(View matrix) const { return matrix.slice(first, inputs); }
  // What the slots' states hold from byte `offset` on.
  States states_at(int64_t offset) const { return {states.base, states.slot_bytes, offset}; }
  // The cache of a layer whose part of the first page is there.
  Cache cache_at(int64_t offset, const StateLayout& layout) const {
    return {states_at(offset), layout.page_bytes, layout.positions};
  }
};

// What a network is made of: the bundle's weights, packed for a backend that outlives it and takes
// its recurrences, and activations for the limits.
struct NetworkParts {
  const Bundle& bundle;
  Backend& backend;
  const StateLayout& layout;  // of the family's layers: where forward() finds their states
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

  // Consumes the run's inputs: advances the states and fills the head. Called for several runs at
  // the same time, and more than once for the same one (Backend::run).
  virtual void forward(const Run& run) const = 0;

  // Whether steps() takes rows that all sample.
  virtual bool fused() const { return false; }

  // Takes rows that have one input each, their slot's pending value, through `steps` steps of
  // forward() and Backend::sample(), with the same bits. Step s writes row r's value to
  // to.from(s * stride + r). Only where fused().
  virtual void steps(const Run& /*run*/, SampledTo /*to*/, int64_t /*stride*/,
                     int /*steps*/) const {}
};

}  // namespace runnel
