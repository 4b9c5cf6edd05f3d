// A backend that forwards every operation to another one and measures how long each takes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>

#include "kernels/forwarding_backend.h"
#include "models/spec.h"

namespace runnel {

// The operations of a step, in order. The linear transformer's five products are identified by
// their shapes; of other families, only the head's product is.
enum class StepPart : uint8_t {
  kEmbed,
  kQkv,
  kFeatures,
  kRecur,
  kAttend,
  kOut,
  kNorm,
  kFfn1,
  kFfn2,
  kProducts,
  kHead,
  kSample,
  kOther
};
inline constexpr int kStepParts = 13;

// "embed", "qkv", ...
const char* step_part_name(StepPart part);

// Time and calls of one part, summed over all threads.
struct Spent {
  std::chrono::nanoseconds time{0};
  int64_t calls = 0;
};
using StepTimes = std::array<Spent, kStepParts>;

class TimedBackend final : public ForwardingBackend {
 public:
  // Measures `to`, which runs a model of `spec`. Both outlive this object.
  TimedBackend(Backend& to, const Spec& spec) : ForwardingBackend(to), spec_(spec) {}

  // The totals of one part since the last reset().
  const Spent& spent(StepPart part) const { return spent_[static_cast<size_t>(part)]; }
  // The average number of threads of a step since the last reset().
  double threads() const;
  void reset();

  void run(Rows rows, int64_t work, const Pass& pass) override;
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override;
  void matmuls(std::span<const Product> products) override;
  void norm(View x, View residual, const Norm& norm, View out) override;
  void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
               View out) override;
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override;
  void shift(Rows rows, View x, View mu, States states, View out) override;
  void convolves(Rows rows, std::span<const Convolved> all) override;
  void features(View x, const RandomFeatures& features, View out) override;
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override;
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override;
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override;
  void score(const Head& kind, View head, View targets, View log_probs) override;
  // None, because a kernel for the whole network would hide the single operations.
  FusedSteps* fused() override { return nullptr; }

 private:
  StepPart part_of(const Weight& weight) const;
  template <typename F>
  void timed(StepPart part, const F& operation);

  const Spec& spec_;
  StepTimes spent_{};
  std::mutex mutex_;  // guards spent_, runs_ and participants_
  int64_t runs_ = 0, participants_ = 0;
};

}  // namespace runnel
