// A backend that passes everything on and keeps the head outputs that are scored, so that tests see
// what the model itself never shows.
#pragma once

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/fused_network.h"

namespace runnel {

class RecordingBackend final : public Backend, public FusedSteps {
 public:
  explicit RecordingBackend(Backend& to) : to_(to) {}

  DeviceKind device() const override { return to_.device(); }
  std::string numerics(Precision precision) const override { return to_.numerics(precision); }
  bool batch_changes_bits() const override { return to_.batch_changes_bits(); }
  Precision precise(Precision of) const override { return to_.precise(of); }
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
  void run(Rows rows, int64_t, const Pass& pass) override { pass(*this, 0, rows.count); }
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override {
    to_.embed(rows, values, control, embedding, out);
  }
  void matmul(View x, const Weight& weight, End end, View out) override {
    to_.matmul(x, weight, end, out);
  }
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override {
    to_.gated_norm(x, norm, gate, out);
  }
  void shift(Rows rows, View x, View mu, States states, View out) override {
    to_.shift(rows, x, mu, states, out);
  }
  void convolve(Rows rows, View x, const Convolution& convolution, States states,
                View out) override {
    to_.convolve(rows, x, convolution, states, out);
  }
  void norm(View x, View residual, const Norm& norm, View out) override {
    to_.norm(x, residual, norm, out);
  }
  void features(View x, const RandomFeatures& features, View out) override {
    to_.features(x, features, out);
  }
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override {
    to_.recur(rows, control, recurrence, inputs, states, out);
  }
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override {
    to_.attend(rows, control, attention, inputs, cache, out);
  }
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override {
    to_.sample(rows, outputs, kind, head, control, to);
  }
  void score(const Head& kind, View head, View targets, View log_probs) override {
    for (int row = 0; row < head.rows; ++row) {
      heads.insert(heads.end(), head.f32(row), head.f32(row) + head.cols);
    }
    to_.score(kind, head, targets, log_probs);
  }
  FusedSteps* fused() override { return to_.fused() == nullptr ? nullptr : this; }
  bool takes(const FusedNetwork& network) const override { return to_.fused()->takes(network); }
  void generate(Rows rows, const FusedNetwork& network, States states, Control* control,
                const Recent& recent, SampledTo to, int64_t stride, int steps) override {
    ++whole_batches;
    to_.fused()->generate(rows, network, states, control, recent, to, stride, steps);
  }
  void copy(Span from, Span to) override { to_.copy(from, to); }
  void zero(Span bytes) override { to_.zero(bytes); }
  int launches() const override { return to_.launches(); }
  int preferred_steps() const override { return to_.preferred_steps(); }
  Result<bool> done(int later) override { return to_.done(later); }

  std::vector<float> heads;  // row after row, of every score() so far
  int whole_batches = 0;     // that generate() has taken

 private:
  Backend& to_;
};

}  // namespace runnel
