// Runs a model step by step: begins a sequence in a slot, feeds it values and generates more.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"

namespace runnel {

// A model on the CPU backend, and that backend.
struct CpuModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

CpuModel make_cpu_model(const Bundle& bundle, const CpuOptions& options, const ModelLimits& limits,
                        Precision precision = Precision::kFp32);

// The result of a generation: values, log-probabilities and the bytes of the final state.
struct HarnessRun {
  std::vector<int32_t> values;
  std::vector<float> log_probs;
  std::vector<std::byte> state;
  friend bool operator==(const HarnessRun&, const HarnessRun&) = default;
};

// Waits for a submitted launch and appends the results to `emitted`.
void finish(Model& model, Ticket ticket, std::vector<Emitted>& emitted);

// Begins a new sequence in `slot`, with the first value `first`.
void begin_sequence(Model& model, SlotId slot, int32_t first, const Control& control = {});

// Feeds `values` in chunks of at most `chunk`, with or without scores. Returns the scores.
std::vector<float> feed(Model& model, SlotId slot, const std::vector<int32_t>& values, int chunk,
                        Want want);

// Generates `count` values for one row, `steps` at a time.
HarnessRun generate(Model& model, SlotId slot, int count, int steps = 1);

// The state of a slot, without the data that is kept next to it.
std::vector<std::byte> state_bytes(Model& model, SlotId slot);

// The same, without the data that caches have after the consumed inputs: that data may be from
// another sequence.
std::vector<std::byte> own_state(Model& model, SlotId slot, int64_t consumed);

// Fails the test unless the parts cover every byte of the state exactly once.
void expect_parts_tile_the_state(const StateLayout& layout);

// Sets the sampling settings of a slot whose sequence has consumed `position` values and has one
// pending.
void sample_from(Model& model, SlotId slot, int32_t pending, int64_t position, uint64_t seed,
                 int64_t remaining, uint32_t stream = 0, const Sampling& sampling = {});

}  // namespace runnel
