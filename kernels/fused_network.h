// A kernel that runs the steps of a whole linear transformer, for devices that have one.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace runnel {

// The network, in the order of its forward pass. Pointers to weights point to the model's own.
struct FusedNetwork {
  struct Layer {
    const Weight* qkv;  // the three projections in one: columns q, k, v
    const Weight* out;
    Norm norm1;
    const Weight* linear1;
    const Weight* linear2;
    Norm norm2;
  };
  Embedding embedding;
  int width = 0;
  std::vector<Layer> layers;
  Recurrence recurrence;
  Activation activation = Activation::kNone;
  Norm final_norm{};  // scale.data null: none
  const Weight* predictor = nullptr;
  Head head;
  int64_t layer_bytes = 0;  // of a state: the distance between the parts of two layers
};

class FusedSteps {
 public:
  virtual ~FusedSteps() = default;

  // Whether the kernel can run networks of this shape. Called once, when the network is loaded.
  virtual bool takes(const FusedNetwork& network) const = 0;

  // Advances rows by `steps` steps of a network for which takes() is true. Each row has one input,
  // the pending value of its slot. The results have the same bits as if the network's operations
  // ran one by one, with Backend::sample() at the end of each step. Step s writes row r's value to
  // to.from(s * stride + r). `states`: whole slots, whose sizes are multiples of 16 bytes. `recent`
  // must have no penalties. Only enqueues, as operations do.
  virtual void generate(Rows rows, const FusedNetwork& network, States states, Control* control,
                        const Recent& recent, SampledTo to, int64_t stride, int steps) = 0;
};

}  // namespace runnel
