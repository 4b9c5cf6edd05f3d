// A backend that forwards every operation to another one and measures how long it takes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "kernels/backend.h"
#include "models/spec.h"

namespace runnel {

// The operations of a step, in order. The linear transformer's five products are identified by
// their shapes; of other families' only the head's is.
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

class TimedBackend final : public Backend {
 public:
  // Measures `to`, which runs a model of `spec`. Both outlive this object.
  TimedBackend(Backend& to, const Spec& spec) : to_(to), spec_(spec) {}

  // The totals of one part since the last reset().
  const Spent& spent(StepPart part) const { return spent_[static_cast<size_t>(part)]; }
  // The average number of threads that a step has run on since then.
  double threads() const;
  void reset();

  DeviceKind device() const override { return to_.device(); }
  std::string numerics(Precision precision) const override { return to_.numerics(precision); }
  bool batch_changes_bits() const override { return to_.batch_changes_bits(); }
  Precision preferred() const override { return to_.preferred(); }
  int64_t state_bytes(const Recurrence& recurrence) const override {
    return to_.state_bytes(recurrence);
  }
  std::vector<StatePart> state_parts(const Recurrence& recurrence) const override {
    return to_.state_parts(recurrence);
  }
  int64_t free_memory() const override { return to_.free_memory(); }
  Status takes(const Recurrence& recurrence) const override { return to_.takes(recurrence); }
  Status takes(const Attention& attention) const override { return to_.takes(attention); }
  int chunk() const override { return to_.chunk(); }
  bool takes_bf16_tables() const override { return to_.takes_bf16_tables(); }
  bool takes_blocks(StoredType type) const override { return to_.takes_blocks(type); }
  Buffer allocate(int64_t bytes, Memory memory) override { return to_.allocate(bytes, memory); }
  Weight pack(HostTensor weight, HostTensor bias, Precision precision) override {
    return to_.pack(weight, bias, precision);
  }
  void run(Rows rows, int64_t work, const Pass& pass) override;
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override;
  void matmul(View x, const Weight& weight, End end, View out) override;
  void matmuls(std::span<const Product> products) override;
  void norm(View x, View residual, const Norm& norm, View out) override;
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override;
  void shift(Rows rows, View x, View mu, States states, View out) override;
  void convolve(Rows rows, View x, const Convolution& convolution, States states,
                View out) override;
  void features(View x, const RandomFeatures& features, View out) override;
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override;
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override;
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override;
  void score(const Head& kind, View head, View targets, View log_probs) override;
  void copy(Span from, Span to) override { to_.copy(from, to); }
  void zero(Span bytes) override { to_.zero(bytes); }
  int launches() const override { return to_.launches(); }
  int preferred_steps() const override { return to_.preferred_steps(); }
  Result<bool> done(int later) override { return to_.done(later); }

 private:
  StepPart part_of(const Weight& weight) const;
  template <typename F>
  void timed(StepPart part, const F& operation);

  Backend& to_;
  const Spec& spec_;
  StepTimes spent_{};
  std::mutex mutex_;  // guards spent_, runs_ and participants_
  int64_t runs_ = 0, participants_ = 0;
};

}  // namespace runnel
