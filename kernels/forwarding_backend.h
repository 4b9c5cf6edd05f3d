// A backend that forwards every operation to another one. To change some operations, derive from it
// and override them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace runnel {

// It also forwards run() and fused(), so lanes and fused kernels are those of the other backend. A
// derived class whose operations must see a whole step overrides these two.
class ForwardingBackend : public Backend {
 public:
  // `inner` must outlive the object.
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  DeviceKind device() const override { return inner_.device(); }
  std::string numerics(Precision precision) const override { return inner_.numerics(precision); }
  bool batch_changes_bits() const override { return inner_.batch_changes_bits(); }
  Precision preferred() const override { return inner_.preferred(); }
  Precision precise(Precision of) const override { return inner_.precise(of); }
  int64_t state_bytes(const Recurrence& recurrence) const override {
    return inner_.state_bytes(recurrence);
  }
  std::vector<StatePart> state_parts(const Recurrence& recurrence) const override {
    return inner_.state_parts(recurrence);
  }
  Status takes(const Recurrence& recurrence) const override { return inner_.takes(recurrence); }
  Status takes(const Attention& attention) const override { return inner_.takes(attention); }
  int chunk() const override { return inner_.chunk(); }
  bool takes_bf16_tables() const override { return inner_.takes_bf16_tables(); }
  bool takes_blocks(StoredType type) const override { return inner_.takes_blocks(type); }
  bool embeds_blocks(StoredType type) const override { return inner_.embeds_blocks(type); }
  int64_t free_memory() const override { return inner_.free_memory(); }
  Buffer allocate(int64_t bytes, Memory memory) override { return inner_.allocate(bytes, memory); }
  Weight pack(HostTensor weight, HostTensor bias, Precision precision) override {
    return inner_.pack(weight, bias, precision);
  }
  void run(Rows rows, int64_t work, const Pass& pass) override { inner_.run(rows, work, pass); }
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override {
    inner_.embed(rows, values, control, embedding, out);
  }
  void matmuls(std::span<const Product> products) override { inner_.matmuls(products); }
  Buffer expert_table(const Experts& experts) override { return inner_.expert_table(experts); }
  void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
               View out) override {
    inner_.experts(x, scores, experts, room, out);
  }
  void norm(View x, View residual, const Norm& norm, View out) override {
    inner_.norm(x, residual, norm, out);
  }
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override {
    inner_.gated_norm(x, norm, gate, out);
  }
  void shift(Rows rows, View x, View mu, States states, View out) override {
    inner_.shift(rows, x, mu, states, out);
  }
  void convolves(Rows rows, std::span<const Convolved> all) override {
    inner_.convolves(rows, all);
  }
  void features(View x, const RandomFeatures& features, View out) override {
    inner_.features(x, features, out);
  }
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override {
    inner_.recur(rows, control, recurrence, inputs, states, out);
  }
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override {
    inner_.attend(rows, control, attention, inputs, cache, out);
  }
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override {
    inner_.sample(rows, outputs, kind, head, control, to);
  }
  void score(const Head& kind, View head, View targets, View log_probs) override {
    inner_.score(kind, head, targets, log_probs);
  }
  FusedSteps* fused() override { return inner_.fused(); }
  void copy(Span from, Span to) override { inner_.copy(from, to); }
  void zero(Span bytes) override { inner_.zero(bytes); }
  int launches() const override { return inner_.launches(); }
  int preferred_steps() const override { return inner_.preferred_steps(); }
  Result<bool> done(int later) override { return inner_.done(later); }

 protected:
  Backend& inner() const { return inner_; }

 private:
  Backend& inner_;
};

}  // namespace runnel
