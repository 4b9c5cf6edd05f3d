// A kernel that takes a whole linear transformer through its steps at once, where a device has one.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace runnel {

// The network, in the order of its forward pass. Weights are where the model has them.
struct FusedNetwork {
  struct Layer {
    const Weight* qkv;  // the three projections side by side: columns q, k, v
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
  int64_t layer_bytes = 0;  // of a state: from one layer's part to the next one's
};

class FusedSteps {
 public:
  virtual ~FusedSteps() = default;

  // Whether the kernel is for networks of this shape; asked once, when it is loaded.
  virtual bool takes(const FusedNetwork& network) const = 0;

  // Takes rows that have one input each, their slot's pending value, through `steps` steps of a
  // network that takes() accepts: what its operations would do one by one, Backend::sample() at the
  // end of each, with the same bits. Step s writes row r's value to to.from(s * stride + r).
  // `states`: whole slots, in steps of 16 bytes. `recent` has no penalties. Only enqueues, as
  // operations do.
  virtual void generate(Rows rows, const FusedNetwork& network, States states, Control* control,
                        const Recent& recent, SampledTo to, int64_t stride, int steps) = 0;
};

}  // namespace runnel
