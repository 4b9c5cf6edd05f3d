#include "tests/models/model_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "models/state/form.h"

namespace runnel {

CpuModel make_cpu_model(const Bundle& bundle, const CpuOptions& options, const ModelLimits& limits,
                        Precision precision) {
  auto backend = make_cpu_backend(options);
  check(backend.ok(), "the backend can be made");
  CpuModel made{std::move(backend).value(), nullptr};
  auto model = make_model(bundle, *made.backend, limits, precision);
  check(model.ok(), "the model can be made");
  made.model = std::move(model).value();
  return made;
}

void finish(Model& model, Ticket ticket, std::vector<Emitted>& emitted) {
  while (!model.collect(ticket, emitted).value()) std::this_thread::yield();
}

void begin_sequence(Model& model, SlotId slot, int32_t first, const Control& control) {
  Control fresh = control;
  fresh.pending = first;
  fresh.position = 0;
  model.set(slot, fresh, true);
}

std::vector<float> feed(Model& model, SlotId slot, const std::vector<int32_t>& values, int chunk,
                        Want want) {
  std::vector<float> scored;
  std::vector<Emitted> emitted;
  for (size_t at = 0; at < values.size(); at += chunk) {
    const size_t count = std::min<size_t>(chunk, values.size() - at);
    const Row row{slot, std::span(values).subspan(at, count), want};
    emitted.clear();
    finish(model, model.submit({&row, 1}, 1), emitted);
    for (const Emitted& e : emitted) scored.push_back(e.log_prob);
  }
  return scored;
}

void sample_from(Model& model, SlotId slot, int32_t pending, int64_t position, uint64_t seed,
                 int64_t remaining, uint32_t stream, const Sampling& sampling) {
  Control control;
  control.seed = seed;
  control.stream = stream;
  control.pending = pending;
  control.position = position;
  control.remaining = remaining;
  control.sampling = sampling;
  model.set(slot, control, false);
}

HarnessRun generate(Model& model, SlotId slot, int count, int steps) {
  HarnessRun generated;
  std::vector<Emitted> emitted;
  const Row row{slot, {}, Want::kNext};
  while (static_cast<int>(generated.values.size()) < count) {
    emitted.clear();
    const int left = count - static_cast<int>(generated.values.size());
    finish(model, model.submit({&row, 1}, std::min(steps, left)), emitted);
    check(!emitted.empty(), "a row that is not frozen emits");
    for (const Emitted& e : emitted) {
      generated.values.push_back(e.value);
      generated.log_probs.push_back(e.log_prob);
    }
  }
  generated.state = state_bytes(model, slot);
  return generated;
}

std::vector<std::byte> state_bytes(Model& model, SlotId slot) {
  std::vector<std::byte> bytes(model.layout().state_bytes);
  model.read(slot, 0, bytes);
  return bytes;
}

std::vector<std::byte> own_state(Model& model, SlotId slot, int64_t consumed) {
  std::vector<std::byte> state = state_bytes(model, slot);
  clear_unused(model.layout(), consumed, state);
  state.resize(static_cast<size_t>(model.layout().live_bytes(consumed)));
  return state;
}

void expect_parts_tile_the_state(const StateLayout& layout) {
  std::vector<int> named(layout.state_bytes);
  for (const StatePart& part : layout.parts) {
    for (int64_t entry = 0; entry < part.shape[0]; ++entry) {
      const int64_t begin = part.offset + entry * part.stride;
      ASSERT_LE(begin + part.entry_bytes(), layout.state_bytes) << part.name;
      for (int64_t i = 0; i < part.entry_bytes(); ++i) ++named[begin + i];
    }
  }
  EXPECT_TRUE(std::ranges::all_of(named, [](int times) { return times == 1; }));
}

}  // namespace runnel
