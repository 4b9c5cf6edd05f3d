// Bit identity through the whole engine: a generation alone has the same values, log-probabilities
// and final state, byte for byte, as among random other calls, in each slot, with each step budget
// (and so each prompt chunking), on 1, 2 and 4 threads, and with a fast or slow reader. Each
// instruction set is tested.

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "tests/engine/harness.h"
#include "tests/kernels/host_backend.h"
#include "tests/kernels/print.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr int kSlots = 6;
constexpr int kValues = 24;

// The conditions under which the tested generation runs.
struct Around {
  int threads = 1;
  int slot = 0;           // its slot
  int batch_values = 64;  // the step's budget
  int steps = 1;
  bool others = false;
  bool slow = false;  // its reader takes values only in some turns
  bool penalized = false;
  uint64_t seed = 1;  // of the random calls
};

// A family of models, and a small spec in this family with 11 values.
struct Family {
  const char* name;
  Spec (*spec)();

  friend void PrintTo(const Family& of, std::ostream* out) { *out << of.name; }
};

class BitIdentityTest : public testing::TestWithParam<std::tuple<Isa, Precision, Family>> {
 protected:
  void SetUp() override {
    if (!isa_available(isa())) GTEST_SKIP() << "this machine has no " << isa_name(isa());
  }
  static Isa isa() { return std::get<0>(GetParam()); }
  static Bundle made_bundle() {
    Bundle bundle = random_bundle(std::get<2>(GetParam()).spec(), 3);
    return std::get<1>(GetParam()) == Precision::kBlocks ? in_blocks(bundle) : bundle;
  }

  HarnessRun run(const Around& around) {
    CpuModel made = make_cpu_model(bundle_, {isa(), around.threads},
                                   {.slots = kSlots,
                                    .rows = kSlots,
                                    .values = around.batch_values,
                                    .steps = around.steps,
                                    .recent = around.penalized ? 9 : 0},
                                   std::get<1>(GetParam()));
    Model& model = *made.model;
    Harness harness(std::move(made.model));
    random_.seed(around.seed);
    // The pool leases the lowest free slot, so sessions fill the slots below the one we want.
    for (int i = 0; i < around.slot; ++i) {
      EXPECT_TRUE(harness.create("s" + std::to_string(i)).ok());
    }
    GenerateRequest request = under_test();
    if (around.penalized) request.penalties = penalties_;
    penalized_ = around.penalized;
    const auto mine = harness.generate(request, around.slow ? 2 * around.steps : 0);
    harness.readers.clear();
    for (int turn = 0; turn < 5000 && !mine->end; ++turn) {
      if (around.others && random_() % 3 == 0) disturb(harness);
      harness.engine->turn();
      if (!around.slow || random_() % 4 == 0) mine->read();
    }
    EXPECT_TRUE(mine->end && mine->end->ok());
    return {mine->values[0], mine->log_probs[0], own_state(model, around.slot, 16 + kValues)};
  }

  static GenerateRequest under_test() {
    std::vector<int32_t> prompt(17);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 5 % 11);
    GenerateRequest request = request_of(prompt, kValues, 77);
    request.sampling.temperature = 0.9F;
    request.sampling.top_k = 7;
    request.keep = true;
    return request;
  }

  // Starts another call, or cancels a running one.
  void disturb(Harness& harness) {
    if (random_() % 4 == 0 && !others_.empty()) {
      others_[random_() % others_.size()]->stream->cancel();
      return;
    }
    std::vector<int32_t> prompt(1 + random_() % 20);
    for (int32_t& value : prompt) value = static_cast<int32_t>(random_() % 11);
    GenerateRequest request = request_of(prompt, static_cast<int64_t>(random_() % 30), random_());
    request.samples = 1 + static_cast<int>(random_() % 2);
    if (penalized_ && random_() % 2 == 0) {
      const auto number = [&] { return static_cast<float>(random_() % 200) / 100.0F; };
      request.penalties = std::make_shared<const Penalties>(
          Penalties{0.5F + number(), number(), -number(), {{3, number()}}});
    }
    const auto other = harness.generate(request);
    if (random_() % 5 == 0) harness.readers.clear();  // nobody reads the stream
    others_.push_back(other);
  }

  const std::shared_ptr<const Penalties> penalties_ =
      std::make_shared<const Penalties>(Penalties{1.3F, 0.7F, 0.3F, {{2, 0.9F}, {5, -1.1F}}});
  const Bundle bundle_ = made_bundle();
  std::mt19937_64 random_;
  bool penalized_ = false;  // whether the other calls may have penalties, too
  std::vector<std::shared_ptr<Reader>> others_;
};

TEST_P(BitIdentityTest, WithPenalties) {
  const HarnessRun alone = run({.penalized = true});
  EXPECT_NE(alone.values, run({}).values);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Around around = {.threads = static_cast<int>(1 << seed % 3),
                           .slot = static_cast<int>(seed % kSlots),
                           .batch_values = 2 + static_cast<int>(seed * 7 % 30),
                           .steps = 1 + static_cast<int>(seed % 4),
                           .others = true,
                           .slow = seed % 2 == 0,
                           .penalized = true,
                           .seed = seed};
    others_.clear();
    EXPECT_EQ(run(around), alone) << seed;
  }
}

TEST_P(BitIdentityTest, InEverySlot) {
  const HarnessRun alone = run({});
  ASSERT_EQ(alone.values.size(), static_cast<size_t>(kValues));
  for (int slot = 1; slot < kSlots; ++slot) EXPECT_EQ(run({.slot = slot}), alone) << slot;
}

TEST_P(BitIdentityTest, WithEveryPromptChunking) {
  const HarnessRun alone = run({});
  for (int values = 1; values <= 18; ++values) {
    EXPECT_EQ(run({.batch_values = values}), alone) << values;
  }
}

TEST_P(BitIdentityTest, OnAnyNumberOfThreads) {
  const HarnessRun alone = run({});
  for (const int threads : {2, 4}) EXPECT_EQ(run({.threads = threads}), alone) << threads;
}

TEST_P(BitIdentityTest, WithAnyNumberOfStepsPerLaunch) {
  const HarnessRun alone = run({});
  for (const int steps : {2, 5, 16}) EXPECT_EQ(run({.steps = steps}), alone) << steps;
}

TEST_P(BitIdentityTest, WithPausesForASlowReader) {
  const HarnessRun alone = run({});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(run({.slow = true, .seed = seed}), alone) << seed;
  }
}

TEST_P(BitIdentityTest, AmongRandomOtherCalls) {
  const HarnessRun alone = run({});
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Around around = {.threads = static_cast<int>(1 << seed % 3),
                           .slot = static_cast<int>(seed % kSlots),
                           .batch_values = 2 + static_cast<int>(seed * 7 % 30),
                           .steps = 1 + static_cast<int>(seed % 4),
                           .others = true,
                           .slow = seed % 2 == 0,
                           .seed = seed};
    others_.clear();
    EXPECT_EQ(run(around), alone) << seed;
  }
}

// A model that takes prompts in chunks, with kernels that run on the host: a session at position 10
// reads 200 values, with budgets that need several steps for them, and among other calls.
TEST(ChunksBitIdentity, WithEveryBudgetAndAmongOtherCalls) {
  const auto run = [](int batch_values, int others, bool late = false) {
    const auto backend =
        cuda::make_host_backend({.chunks = true}, cuda::ThreadOrder::kForward, late);
    const ModelLimits limits = {.slots = 6, .rows = 6, .values = batch_values, .steps = 2};
    auto made = make_model(random_bundle(small_symbol_spec(), 3), *backend, limits);
    Model& model = **made;
    Harness harness(std::move(*made));
    EXPECT_TRUE(harness.create("mine").ok());
    const auto give = [&](int count, int64_t more, bool session) {
      std::vector<int32_t> prompt(count);
      for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 11);
      GenerateRequest request = request_of(prompt, more, 7);
      if (session) request.session = "mine";
      return harness.generate(request);
    };
    give(11, 0, true);
    harness.run();
    for (int i = 0; i < others; ++i) give(90 + 70 * i, 20, false);
    const auto reader = give(200, 5, true);
    harness.run();
    EXPECT_TRUE(reader->end && reader->end->ok());
    return HarnessRun{reader->values[0], reader->log_probs[0], state_bytes(model, 0)};
  };
  const HarnessRun alone = run(256, 0);
  ASSERT_EQ(alone.values.size(), 5U);
  for (const int batch_values : {70, 100, 140, 199}) EXPECT_EQ(run(batch_values, 0), alone);
  for (const int others : {1, 3}) {
    EXPECT_EQ(run(80 * others, others), alone) << others;
    EXPECT_EQ(run(80 * others, others, true), alone) << others;
  }
}

std::string case_name(const testing::TestParamInfo<std::tuple<Isa, Precision, Family>>& info) {
  const auto [isa, precision, family] = info.param;
  return std::string(isa_name(isa)) + precision_name(precision) + family.name;
}

INSTANTIATE_TEST_SUITE_P(
    , BitIdentityTest,
    testing::Combine(
        testing::ValuesIn(kIsas),
        testing::Values(Precision::kFp32, Precision::kBf16, Precision::kInt8),
        testing::Values(
            Family{"LinearTransformer", small_symbol_spec}, Family{"Rwkv7", small_rwkv7_spec},
            Family{"Mamba2", small_mamba2_spec},
            Family{"Rwkv6", [] { return small_rwkv6_spec(Rwkv6Version::kSix); }},
            Family{"Mamba1", small_mamba1_spec},
            Family{"Qwen35", [] { return small_hybrid_spec(HybridStyle::kQwen35); }},
            Family{"FalconH1", [] { return small_hybrid_spec(HybridStyle::kFalconH1); }},
            Family{"Gla", [] { return small_gated_linear_spec(GatedMixer::kGla); }},
            Family{"GatedDeltaNet",
                   [] { return small_gated_linear_spec(GatedMixer::kGatedDeltaNet); }})),
    case_name);
INSTANTIATE_TEST_SUITE_P(Blocks, BitIdentityTest,
                         testing::Combine(testing::ValuesIn(kIsas),
                                          testing::Values(Precision::kBlocks),
                                          testing::Values(Family{"Rwkv7", small_blocks_spec})),
                         case_name);
// Hybrids only run known operations in a new order, so one instruction set is enough.
INSTANTIATE_TEST_SUITE_P(
    Hybrids, BitIdentityTest,
    testing::Combine(
        testing::Values(kIsas[0]), testing::Values(Precision::kFp32),
        testing::Values(
            Family{"Lfm2", [] { return small_hybrid_spec(HybridStyle::kLfm2); }},
            Family{"Granite", [] { return small_hybrid_spec(HybridStyle::kGranite); }},
            Family{"NemotronH", [] { return small_hybrid_spec(HybridStyle::kNemotronH); }},
            Family{"Qwen35Experts", [] { return small_experts_spec(HybridStyle::kQwen35); }},
            Family{"Lfm2Experts", [] { return small_experts_spec(HybridStyle::kLfm2); }},
            Family{"NemotronHExperts", [] { return small_experts_spec(HybridStyle::kNemotronH); }},
            Family{"Softmax", small_softmax_spec})),
    case_name);

}  // namespace
}  // namespace runnel
