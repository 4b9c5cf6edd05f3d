// A backend that forwards every operation and records the head outputs that are scored, which the
// model itself does not return, for tests.
#pragma once

#include <vector>

#include "kernels/forwarding_backend.h"
#include "kernels/fused_network.h"

namespace runnel {

class RecordingBackend final : public ForwardingBackend, public FusedSteps {
 public:
  explicit RecordingBackend(Backend& to) : ForwardingBackend(to) {}

  using ForwardingBackend::takes;
  void run(Rows rows, int64_t, const Pass& pass) override { pass(*this, 0, rows.count); }
  void score(const Head& kind, View head, View targets, View log_probs) override {
    for (int row = 0; row < head.rows; ++row) {
      heads.insert(heads.end(), head.f32(row), head.f32(row) + head.cols);
    }
    inner().score(kind, head, targets, log_probs);
  }
  FusedSteps* fused() override { return inner().fused() == nullptr ? nullptr : this; }
  bool takes(const FusedNetwork& network) const override { return inner().fused()->takes(network); }
  void generate(Rows rows, const FusedNetwork& network, States states, Control* control,
                const Recent& recent, SampledTo to, int64_t stride, int steps) override {
    ++whole_batches;
    inner().fused()->generate(rows, network, states, control, recent, to, stride, steps);
  }

  std::vector<float> heads;  // the rows of every score() so far
  int whole_batches = 0;     // batches that generate() has run
};

}  // namespace runnel
