// A model on a device that takes two launches at once and runs them as late as possible
// (tests/kernels/host_device.h) gives the results of one launch at a time.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/kernels/host_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"
#include "tests/models/recording_backend.h"

namespace runnel {
namespace {

using cuda::ThreadOrder;

constexpr ModelLimits kLaunchLimits = {
    .slots = 6, .rows = 4, .values = 32, .steps = 3, .recent = 5};
constexpr int kLaunches = 6;

// The values, likeliest values and log-probabilities of a run, and its final states.
struct Outcome {
  std::vector<int64_t> emitted;
  std::vector<std::vector<std::byte>> states;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

int32_t bits_of(float x) {
  int32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

void collect(Model& model, Ticket ticket, Outcome& outcome) {
  std::vector<Emitted> emitted;
  finish(model, ticket, emitted);
  for (const Emitted& at : emitted) {
    outcome.emitted.insert(outcome.emitted.end(),
                           {at.row, at.value, at.position, bits_of(at.log_prob)});
    for (const TopLogProb& top : at.top) {
      outcome.emitted.insert(outcome.emitted.end(), {top.value, bits_of(top.log_prob)});
    }
  }
}

void begin(Model& model, SlotId slot) {
  Control control;
  control.seed = static_cast<uint64_t>(slot) + 1;
  control.pending = slot;
  control.remaining = 100;
  control.top_log_probs = slot % 3;
  model.set(slot, control, true);
  if (slot == 0 || model.limits().recent == 0) return;
  const Penalties penalties = {
      1.5F, 0.4F, 0.3F, {{slot, -0.7F}, {7, 0.2F * static_cast<float>(slot)}}};
  model.penalize(slot, {std::make_shared<const Penalties>(penalties), 1});
}

// Alternates sampling, scoring and prompts over changing slots. If the head takes penalties, all
// slots but 0 have some. A sequence begins before each launch. `at_once`: the number of launches
// that are submitted before the first of them is collected.
Outcome run(Model& model, int at_once) {
  Outcome outcome;
  const std::vector<int32_t> values = {2, 1, 3};
  Ticket collected = 0;
  for (int launch = 0; launch < kLaunches; ++launch) {
    begin(model, (launch + 3) % kLaunchLimits.slots);
    if (launch == 0) begin(model, 0);
    const SlotId newest = (launch + 3) % kLaunchLimits.slots;
    std::vector<Row> rows = {{launch % 2 == 0 ? 0 : newest, {}, Want::kNext}};
    int steps = 3;
    if (launch % 3 == 2) {
      rows.push_back({(launch + 2) % kLaunchLimits.slots, values, Want::kScores});
      steps = 1;
    }
    const Ticket ticket = model.submit(rows, steps);
    while (ticket - collected >= static_cast<Ticket>(at_once)) {
      collect(model, ++collected, outcome);
    }
    if (launch + 1 == kLaunches) {
      while (collected < ticket) collect(model, ++collected, outcome);
    }
  }
  for (SlotId slot = 0; slot < kLaunchLimits.slots; ++slot) {
    outcome.states.push_back(state_bytes(model, slot));
  }
  return outcome;
}

// Sizes that the whole-model kernel supports.
Spec whole_spec() {
  Spec spec = small_symbol_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  sizes.width = sizes.value_width = 96;
  sizes.heads = 3;
  sizes.query_size = sizes.value_size = 32;
  sizes.ffn = 384;
  return spec;
}

std::unique_ptr<Model> model_on(Backend& backend, const Spec& spec) {
  return make_model(random_bundle(spec, 5), backend, kLaunchLimits, Precision::kBf16).value();
}

void expect_the_bits_of_one_after_the_other(Backend& one, Backend& two) {
  for (const Spec& spec : {small_image_spec(), whole_spec(), small_softmax_spec()}) {
    const auto expected_of = model_on(one, spec);
    const auto model = model_on(two, spec);
    EXPECT_EQ(model->limits().launches, 2);
    const Outcome expected = run(*expected_of, 1);
    EXPECT_FALSE(expected.emitted.empty());
    EXPECT_TRUE(run(*model, 2) == expected) << spec.name;
  }
}

TEST(Launches, TwoInFlightHaveTheBitsOfOneAtATime) {
  for (const bool whole : {false, true}) {
    const CudaOptions options = {.whole = whole};
    const auto one = cuda::make_host_backend(options);
    const auto two = cuda::make_host_backend(options, ThreadOrder::kForward, true);
    RecordingBackend recording(*one);
    expect_the_bits_of_one_after_the_other(recording, *two);
    EXPECT_EQ(recording.whole_batches > 0, whole);
  }
}

TEST(Launches, TwoOnTheGpuHaveTheBitsOfOneAtATime) {
  for (const bool whole : {false, true}) {
    const auto one = make_cuda_backend({.whole = whole});
    if (one.status().code() == Code::kFailedPrecondition) GTEST_SKIP() << one.status().message();
    const auto two = make_cuda_backend({.whole = whole});
    ASSERT_TRUE(one.ok() && two.ok());
    expect_the_bits_of_one_after_the_other(**one, **two);
  }
}

TEST(Launches, StepsPerLaunchDefaultToTheBackendsBest) {
  ModelLimits limits = kLaunchLimits;
  limits.steps = 0;
  const auto steps = [&](Backend& backend) {
    return (*make_model(random_bundle(small_symbol_spec(), 5), backend, limits))->limits().steps;
  };
  EXPECT_EQ(steps(*cuda::make_host_backend()), 16);
  EXPECT_EQ(steps(*make_cpu_backend({}).value()), 1);
}

}  // namespace
}  // namespace runnel
