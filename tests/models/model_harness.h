// Drives a model by hand: a sequence in a slot, given values, asked for the next ones.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"

namespace runnel {

// A model on the CPU backend and the backend that it stands on.
struct CpuModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

CpuModel make_cpu_model(const Bundle& bundle, const CpuOptions& options, const ModelLimits& limits,
                        Precision precision = Precision::kFp32);

// What a generation came to: values, log-probabilities and the bytes of its final state.
struct HarnessRun {
  std::vector<int32_t> values;
  std::vector<float> log_probs;
  std::vector<std::byte> state;
  friend bool operator==(const HarnessRun&, const HarnessRun&) = default;
};

// Waits for what was submitted, and appends what it emitted.
void finish(Model& model, Ticket ticket, std::vector<Emitted>& emitted);

// Starts a fresh sequence in `slot` whose first value is `first`.
void begin_sequence(Model& model, SlotId slot, int32_t first, const Control& control = {});

// Feeds `values` in chunks of at most `chunk`, asking for scores or not; what was scored.
std::vector<float> feed(Model& model, SlotId slot, const std::vector<int32_t>& values, int chunk,
                        Want want);

// Steps one row until `count` values have come, `steps` at a time.
HarnessRun generate(Model& model, SlotId slot, int count, int steps = 1);

// The state of a slot, without what stands beside it.
std::vector<std::byte> state_bytes(Model& model, SlotId slot);

// The same without what caches hold after the inputs that the slot's sequence has consumed: that
// may be another sequence's.
std::vector<std::byte> own_state(Model& model, SlotId slot, int64_t consumed);

// Fails the test unless the parts are all of the state's bytes, each once.
void expect_parts_tile_the_state(const StateLayout& layout);

// Sampling settings for the slot of a sequence that has been fed `position` values and a pending
// one.
void sample_from(Model& model, SlotId slot, int32_t pending, int64_t position, uint64_t seed,
                 int64_t remaining, uint32_t stream = 0, const Sampling& sampling = {});

}  // namespace runnel
