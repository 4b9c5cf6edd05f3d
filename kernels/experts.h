// Mixtures of experts: their weights, and how an input chooses among them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace runnel {

// How an input chooses its experts, and the share p of each. Of experts with equal scores, the
// first is chosen.
enum class RouterKind : uint8_t {
  kSoftmax,  // the largest scores; p is the softmax of the chosen scores
  kSigmoid,  // with s = sigmoid(score), the largest s + bias; p is s / (sum of the chosen s + eps)
};

struct Router {
  RouterKind kind = RouterKind::kSoftmax;
  int chosen = 0;               // experts of an input
  bool shared = false;          // the last expert is used by every input: p = sigmoid(its score)
  const float* bias = nullptr;  // of kSigmoid: fp32 [experts]; null: none
  float eps = 0.0F;             // of kSigmoid

  // All experts that an input uses.
  RUNNEL_DEVICE constexpr int used() const { return chosen + (shared ? 1 : 0); }
  // Experts among which an input chooses, if there are `experts` in all.
  RUNNEL_DEVICE constexpr int choices(int experts) const { return shared ? experts - 1 : experts; }
};

// A mixture of experts. Each expert is a gated linear layer with a product after it:
//   y = sum over the used e of p_e down_e(activation(gate_e x) * up_e x).
// The sum adds experts in ascending order. Without gates, an expert is down_e(activation(up_e x)).
struct Experts {
  // One weight for each expert, without a bias: gate (or none) and up [inner, in], down [in,
  // inner]. Experts may differ in `inner`.
  std::span<const Weight> gate, up, down;
  Activation activation = Activation::kSilu;
  Router router;
  float factor = 1.0F;          // of y
  const void* table = nullptr;  // what Backend::expert_table() has returned
};

// Memory that experts() uses, without gaps between rows. A row is for the input of that row.
struct ExpertRoom {
  View used;    // i32 [inputs, used]
  View shares;  // fp32 [inputs, used]
  View wide;    // fp32 [inputs, used * in]
  View hidden;  // fp32 [inputs, used * the largest inner]
};

}  // namespace runnel
