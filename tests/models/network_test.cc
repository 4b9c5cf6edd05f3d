// A model of every family, used as the scheduler uses it. The bytes of its results must be exact,
// on every instruction set.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/begin.h"
#include "models/make_model.h"
#include "tests/kernels/print.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr ModelLimits kNetworkLimits = {.slots = 12, .rows = 12, .values = 64, .steps = 8};

// The kinds of models. spec_of() gives each of them enough positions for random sequences.
enum class Kind {
  kSymbols,
  kImage,
  kGated,
  kRwkv7,
  kMamba2,
  kGla,
  kRetNet,
  kDeltaNet,
  kGatedDeltaNet,
  kKda,
  kHgrn2,
  kRwkv6,
  kRwkv5,
  kMamba1,
  kQwen35,
  kLfm2,
  kGranite,
  kFalconH1,
  kNemotronH,
  kExperts,
  kSoftmax
};
constexpr const char* kKindNames[] = {
    "Symbols",  "Image",         "Gated",   "Rwkv7",    "Mamba2",    "Gla",     "RetNet",
    "DeltaNet", "GatedDeltaNet", "Kda",     "Hgrn2",    "Rwkv6",     "Rwkv5",   "Mamba1",
    "Qwen35",   "Lfm2",          "Granite", "FalconH1", "NemotronH", "Experts", "Softmax"};
constexpr Kind kKinds[] = {Kind::kSymbols, Kind::kImage,         Kind::kGated,  Kind::kRwkv7,
                           Kind::kMamba2,  Kind::kGla,           Kind::kRetNet, Kind::kDeltaNet,
                           Kind::kKda,     Kind::kGatedDeltaNet, Kind::kHgrn2,  Kind::kRwkv6,
                           Kind::kRwkv5,   Kind::kMamba1};
// Models whose attention has caches.
constexpr Kind kCachedKinds[] = {Kind::kQwen35,    Kind::kLfm2,    Kind::kGranite, Kind::kFalconH1,
                                 Kind::kNemotronH, Kind::kExperts, Kind::kSoftmax};
// Kinds that also have a large model: one for each kind of recurrence.
constexpr Kind kLargeKinds[] = {Kind::kImage,         Kind::kRwkv7,  Kind::kMamba2, Kind::kGla,
                                Kind::kGatedDeltaNet, Kind::kRetNet, Kind::kRwkv6,  Kind::kMamba1};

void PrintTo(Kind kind, std::ostream* out) { *out << kKindNames[static_cast<int>(kind)]; }

Spec endless_image_spec() {
  Spec spec = small_image_spec();
  spec.image.reset();
  spec.positions = 400;
  return spec;
}

Spec spec_of(Kind kind) {
  switch (kind) {
    case Kind::kSymbols:
      return small_symbol_spec();
    case Kind::kImage:
      return endless_image_spec();
    case Kind::kGated:
      return small_gated_spec();
    case Kind::kRwkv7:
      return small_rwkv7_spec();
    case Kind::kMamba2:
      return small_mamba2_spec();
    case Kind::kGla:
      return small_gated_linear_spec(GatedMixer::kGla);
    case Kind::kRetNet:
      return small_gated_linear_spec(GatedMixer::kRetNet);
    case Kind::kDeltaNet:
      return small_gated_linear_spec(GatedMixer::kDeltaNet);
    case Kind::kGatedDeltaNet:
      return small_gated_linear_spec(GatedMixer::kGatedDeltaNet);
    case Kind::kKda:
      return small_gated_linear_spec(GatedMixer::kKda);
    case Kind::kHgrn2:
      return small_gated_linear_spec(GatedMixer::kHgrn2);
    case Kind::kRwkv6:
      return small_rwkv6_spec(Rwkv6Version::kSix);
    case Kind::kRwkv5:
      return small_rwkv6_spec(Rwkv6Version::kFive);
    case Kind::kMamba1:
      return small_mamba1_spec();
    case Kind::kQwen35:
      return small_hybrid_spec(HybridStyle::kQwen35);
    case Kind::kLfm2:
      return small_hybrid_spec(HybridStyle::kLfm2);
    case Kind::kGranite:
      return small_hybrid_spec(HybridStyle::kGranite);
    case Kind::kFalconH1:
      return small_hybrid_spec(HybridStyle::kFalconH1);
    case Kind::kNemotronH:
      return small_hybrid_spec(HybridStyle::kNemotronH);
    case Kind::kExperts:
      return small_experts_spec(HybridStyle::kQwen35);
    case Kind::kSoftmax:
      return small_softmax_spec();
  }
  return {};
}

// The parts of one layer, in the order of their offsets.
std::vector<std::string> part_names(Kind kind) {
  if (kind == Kind::kRwkv7 || kind == Kind::kRwkv6 || kind == Kind::kRwkv5) {
    return {"S", "time_input", "channel_input"};
  }
  if (kind == Kind::kMamba2 || kind == Kind::kMamba1) return {"S", "conv_inputs"};
  if (kind == Kind::kRetNet || kind == Kind::kDeltaNet) return {"S"};
  if (kind >= Kind::kGla) return {"S", "q_inputs", "k_inputs", "v_inputs"};
  return {"S", "z"};
}

class NetworkTest : public testing::TestWithParam<std::tuple<Isa, Precision, Kind>> {
 protected:
  void SetUp() override {
    if (!isa_available(isa())) GTEST_SKIP() << "this machine has no " << isa_name(isa());
  }
  Isa isa() const { return std::get<0>(GetParam()); }
  Precision precision() const { return std::get<1>(GetParam()); }
  Kind kind() const { return std::get<2>(GetParam()); }
  Bundle bundle() const { return random_bundle(spec_of(kind()), 5); }
  CpuModel make(int threads = 1) const {
    return make_cpu_model(bundle(), {isa(), threads}, kNetworkLimits, precision());
  }

  // A prompt of 9 values and 12 sampled values, alone in slot 0: all variations must give the same.
  static constexpr int kCount = 12;
  static constexpr int64_t kConsumed = 8 + kCount;  // the last value is pending
  std::vector<int32_t> prompt() const {
    std::vector<int32_t> values(9);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7 % 11);
    return values;
  }
  HarnessRun run(Model& model, SlotId slot, int chunk, int steps, uint64_t seed = 99) const {
    const auto values = prompt();
    begin_sequence(model, slot, values[0]);
    feed(model, slot, {values.begin() + 1, values.end()}, chunk, Want::kNothing);
    sample_from(model, slot, values.back(), static_cast<int64_t>(values.size()) - 1, seed, kCount);
    return sample(model, slot, kCount, kConsumed, steps);
  }

  // The next `count` values of a slot. The slot has then consumed `consumed` inputs.
  static HarnessRun sample(Model& model, SlotId slot, int count, int64_t consumed, int steps = 1) {
    HarnessRun sampled = generate(model, slot, count, steps);
    sampled.state = own_state(model, slot, consumed);
    return sampled;
  }
};

TEST_P(NetworkTest, StateBytesAreExact) {
  const CpuModel made = make();
  const Spec& spec = made.model->spec();
  const int64_t caches =
      StateLayout::pages_of(spec.positions) * kPagePositions * spec.position_bytes();
  const int64_t saved = precision() == Precision::kFp32 ? 0 : caches / 2;  // saved by bf16 caches
  EXPECT_EQ(made.model->layout().state_bytes, spec.state_bytes() - saved);
}

TEST_P(NetworkTest, PartsNameEveryByteOfAState) {
  const CpuModel made = make();
  const StateLayout& layout = made.model->layout();
  const Spec& spec = made.model->spec();
  expect_parts_tile_the_state(layout);
  if (spec.position_bytes() > 0) return;  // its layers differ
  const auto recurrence = std::get<Recurrence>(family_of(spec).layers(spec)[1][0]);
  const std::vector<std::string> names = part_names(kind());
  ASSERT_GE(layout.parts.size(), 2 * names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(layout.parts[names.size() + i].name, "layers.1." + names[i]);
  }
  const StatePart& s = layout.parts[names.size()];
  EXPECT_EQ(s.type, DType::kF32);
  EXPECT_EQ(s.shape, (std::vector<int64_t>{recurrence.heads, recurrence.dk, recurrence.dv}));
}

TEST_P(NetworkTest, AnEmptyStateIsZerosAndAStepFillsEveryPart) {
  const CpuModel made = make();
  begin_sequence(*made.model, 3, 1);
  for (const std::byte byte : own_state(*made.model, 3, 0)) ASSERT_EQ(byte, std::byte{0});
  feed(*made.model, 3, prompt(), 64, Want::kNothing);
  const std::vector<std::byte> bytes = state_bytes(*made.model, 3);
  for (const StatePart& part : made.model->layout().parts) {
    const int64_t entries = part.paged ? 1 : part.shape[0];  // only the first page of a cache
    for (int64_t head = 0; head < entries; ++head) {
      const auto* entry = bytes.data() + part.offset + head * part.stride;
      EXPECT_TRUE(std::any_of(entry, entry + part.entry_bytes(),
                              [](std::byte byte) { return byte != std::byte{0}; }))
          << part.name << " " << head;
    }
  }
}

TEST_P(NetworkTest, TheNumericsIdNamesEverythingThatDecidesBits) {
  const CpuModel made = make();
  const std::string caches = made.model->spec().position_bytes() == 0 ? ""
                             : precision() == Precision::kFp32        ? "+cache-fp32"
                                                                      : "+cache-bf16";
  EXPECT_EQ(made.model->layout().numerics,
            made.backend->numerics(precision()) + "/state-fp32" + caches);
}

TEST_P(NetworkTest, PromptChunksDoNotChangeBits) {
  const CpuModel made = make();
  const HarnessRun alone = run(*made.model, 0, 64, 1);
  for (const int chunk : {1, 2, 3, 5, 7}) EXPECT_EQ(run(*made.model, 0, chunk, 1), alone) << chunk;
}

TEST_P(NetworkTest, SlotsStepsAndThreadsDoNotChangeBits) {
  const HarnessRun alone = run(*make().model, 0, 64, 1);
  for (const int threads : {1, 2, 4}) {
    const CpuModel made = make(threads);
    for (SlotId slot = 0; slot < kNetworkLimits.slots; slot += 5) {
      EXPECT_EQ(run(*made.model, slot, 64, 1), alone) << threads << " " << slot;
      EXPECT_EQ(run(*made.model, slot, 3, 8), alone) << threads << " " << slot;
    }
  }
}

// The sequence under test runs among others that prompt, score, sample, start and stop at random.
TEST_P(NetworkTest, TheBatchDoesNotChangeBits) {
  const HarnessRun alone = run(*make().model, 0, 64, 1);
  const CpuModel made = make(2);
  Model& model = *made.model;
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 20; ++round) {
    const SlotId mine = below(kNetworkLimits.slots);
    const auto values = prompt();
    for (SlotId slot = 0; slot < kNetworkLimits.slots; ++slot) {
      Control control;
      control.seed = random();
      control.remaining = 1 + below(30);
      begin_sequence(model, slot, slot == mine ? values[0] : below(11), control);
    }
    size_t fed = 1;
    HarnessRun generated;
    std::vector<Emitted> emitted;
    std::vector<std::vector<int32_t>> others(kNetworkLimits.slots);
    while (static_cast<int>(generated.values.size()) < kCount) {
      std::vector<Row> rows;
      for (SlotId slot = 0; slot < kNetworkLimits.slots; ++slot) {
        if (slot == mine || below(3) == 0) continue;
        auto& given = others[slot];
        given.resize(below(2) == 0 ? 0 : 1 + below(4));
        for (int32_t& value : given) value = below(11);
        const Want want = given.empty()   ? Want::kNext
                          : below(2) == 0 ? Want::kScores
                                          : Want::kNothing;
        rows.push_back({slot, given, want});
      }
      const size_t chunk = std::min<size_t>(1 + below(4), values.size() - fed);
      const bool sampling = fed == values.size();
      if (sampling && generated.values.empty()) {
        sample_from(model, mine, values.back(), static_cast<int64_t>(values.size()) - 1, 99,
                    kCount);
      }
      rows.push_back(sampling ? Row{mine, {}, Want::kNext}
                              : Row{mine, std::span(values).subspan(fed, chunk), Want::kNothing});
      fed += sampling ? 0 : chunk;
      std::shuffle(rows.begin(), rows.end(), random);
      std::stable_sort(rows.begin(), rows.end(),
                       [](const Row& a, const Row& b) { return a.want < b.want; });
      emitted.clear();
      ASSERT_TRUE(model.collect(model.submit(rows, 1), emitted).value());
      for (const Emitted& e : emitted) {
        if (rows[e.row].slot != mine) continue;
        generated.values.push_back(e.value);
        generated.log_probs.push_back(e.log_prob);
      }
    }
    generated.state = own_state(model, mine, kConsumed);
    ASSERT_EQ(generated, alone) << round;
  }
}

TEST_P(NetworkTest, AReusedSlotDoesNotAffectTheNextSequence) {
  const CpuModel made = make();
  const HarnessRun first = run(*made.model, 3, 64, 1);
  run(*made.model, 3, 2, 4, 12345);
  EXPECT_EQ(run(*made.model, 3, 64, 1), first);
}

TEST_P(NetworkTest, ACopyContinuesLikeTheOriginal) {
  const CpuModel made = make();
  Model& model = *made.model;
  const auto values = prompt();
  begin_sequence(model, 1, values[0]);
  feed(model, 1, {values.begin() + 1, values.end()}, 64, Want::kNothing);
  sample_from(model, 1, values.back(), 8, 4, 20);
  generate(model, 1, 5);
  model.copy(1, 7, 13);
  EXPECT_EQ(sample(model, 7, 10, 23), sample(model, 1, 10, 23));
}

TEST_P(NetworkTest, AStateMovesToAnotherModelOfTheSameNumerics) {
  const CpuModel here = make();
  const CpuModel there = make(2);
  const auto values = prompt();
  begin_sequence(*here.model, 1, values[0]);
  feed(*here.model, 1, {values.begin() + 1, values.end()}, 64, Want::kNothing);
  sample_from(*here.model, 1, values.back(), 8, 4, 20);
  const int32_t pending = generate(*here.model, 1, 5).values.back();
  there.model->write(2, 0, state_bytes(*here.model, 1));
  sample_from(*there.model, 2, pending, 13, 4, 15);
  EXPECT_EQ(generate(*there.model, 2, 10), generate(*here.model, 1, 10));
}

TEST_P(NetworkTest, ARowFreezesWhenNoValuesRemain) {
  const CpuModel made = make();
  Model& model = *made.model;
  begin_sequence(model, 0, 1);
  begin_sequence(model, 1, 1);
  sample_from(model, 0, 1, 0, 5, 3);
  sample_from(model, 1, 1, 0, 5, 8);
  const std::vector<Row> rows = {{0, {}, Want::kNext}, {1, {}, Want::kNext}};
  std::vector<Emitted> emitted;
  ASSERT_TRUE(model.collect(model.submit(rows, 8), emitted).value());
  EXPECT_EQ(std::count_if(emitted.begin(), emitted.end(), [](auto& e) { return e.row == 0; }), 3);
  EXPECT_EQ(std::count_if(emitted.begin(), emitted.end(), [](auto& e) { return e.row == 1; }), 8);
  // A row that freezes at its third value has the state of a launch that ends there.
  begin_sequence(model, 2, 1);
  sample_from(model, 2, 1, 0, 5, 3);
  generate(model, 2, 3);
  EXPECT_EQ(own_state(model, 0, 3), own_state(model, 2, 3));
}

TEST_P(NetworkTest, ScoresAgreeWithTheLogProbabilitiesOfGeneration) {
  const CpuModel made = make();
  const HarnessRun generated = run(*made.model, 0, 64, 1);
  const auto values = prompt();
  for (const int chunk : {1, 4, 64}) {
    begin_sequence(*made.model, 1, values[0]);
    auto scored = feed(*made.model, 1, {values.begin() + 1, values.end()}, chunk, Want::kScores);
    EXPECT_EQ(scored.size(), values.size() - 1);
    scored = feed(*made.model, 1, generated.values, chunk, Want::kScores);
    EXPECT_EQ(scored, generated.log_probs) << chunk;
  }
}

std::string network_case_name(
    const testing::TestParamInfo<std::tuple<Isa, Precision, Kind>>& info) {
  return std::string(isa_name(std::get<0>(info.param))) + precision_name(std::get<1>(info.param)) +
         kKindNames[static_cast<int>(std::get<2>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(, NetworkTest,
                         testing::Combine(testing::ValuesIn(kIsas),
                                          testing::Values(Precision::kFp32, Precision::kBf16,
                                                          Precision::kInt8),
                                          testing::ValuesIn(kKinds)),
                         network_case_name);
// Caches of fp32 and of bf16. AttendTest and BitIdentityTest cover the other instruction sets.
INSTANTIATE_TEST_SUITE_P(Hybrids, NetworkTest,
                         testing::Combine(testing::Values(kIsas[0]),
                                          testing::Values(Precision::kFp32, Precision::kBf16),
                                          testing::ValuesIn(kCachedKinds)),
                         network_case_name);

// Models so large that threads share their operations even if there are few rows.
Spec large_spec(Kind kind) {
  Spec spec = spec_of(kind);
  spec.vocabulary = spec.head.values = 256;
  if (auto* const rwkv7 = std::get_if<Rwkv7Spec>(&spec.model)) {
    rwkv7->width = rwkv7->value_width = 256;
    rwkv7->heads = 8;
    rwkv7->ffn = 512;
    rwkv7->table_rows = 256;
  } else if (auto* const mamba2 = std::get_if<Mamba2Spec>(&spec.model)) {
    mamba2->width = 256;
    mamba2->heads = 16;
    mamba2->head_size = mamba2->state_size = 32;
    mamba2->table_rows = 256;
  } else if (auto* const gated = std::get_if<GatedLinearSpec>(&spec.model)) {
    gated->width = gated->table_rows = 256;
    gated->heads = 8;
    gated->key_heads = gated->rotates() ? 8 : 4;
    gated->dk = gated->dv = 32;
    gated->ffn = 512;
  } else if (auto* const rwkv6 = std::get_if<Rwkv6Spec>(&spec.model)) {
    rwkv6->width = rwkv6->table_rows = 256;
    rwkv6->heads = 8;
    rwkv6->ffn = 512;
  } else if (auto* const mamba1 = std::get_if<Mamba1Spec>(&spec.model)) {
    mamba1->width = mamba1->table_rows = 256;
    mamba1->inner = 512;
  } else if (auto* const hybrid = std::get_if<HybridSpec>(&spec.model)) {
    hybrid->width = hybrid->table_rows = 256;
    hybrid->ffn = 512;
    hybrid->heads = hybrid->recurrent_heads = 8;
    hybrid->kv_heads = hybrid->key_heads = 4;
    hybrid->head_size = hybrid->dk = hybrid->dv = 32;
    if (kind == Kind::kExperts) {
      hybrid->ffn = 0;
      hybrid->experts = {.count = 12, .chosen = 3, .ffn = 200, .shared = 90};
    }
  } else {
    LinearTransformerSpec& sizes = sizes_of(spec);
    sizes.width = 256;
    sizes.heads = 8;
    sizes.query_size = sizes.value_size = 32;
    sizes.ffn = 512;
    sizes.value_width = 128;
  }
  return spec;
}

class LargeModelTest : public testing::TestWithParam<std::tuple<Isa, Precision, Kind>> {
 protected:
  void SetUp() override {
    const auto [isa, precision, kind] = GetParam();
    if (!isa_available(isa)) GTEST_SKIP() << "this machine has no " << isa_name(isa);
    if (!bundles_.contains(kind)) bundles_[kind] = random_bundle(large_spec(kind), 6);
  }
  // The number of rows of the largest batch. The portable code is ten times slower per row.
  static int most_rows() { return std::get<0>(GetParam()) == Isa::kPortable ? 20 : 80; }

  static CpuModel make(int threads, std::shared_ptr<CpuThreads> shared = nullptr) {
    const auto [isa, precision, kind] = GetParam();
    return make_cpu_model(bundles_.at(kind), {isa, threads, std::move(shared)},
                          {.slots = 80, .rows = 80, .values = 256, .steps = 8}, precision);
  }

  // Runs row `index` in a batch. Only this row has a prompt, and all rows sample 9 values.
  static HarnessRun run(Model& model, int index, int rows, int chunk, int steps) {
    const std::vector<int32_t> prompt = {5, 0, 9, 200, 17, 255, 3, 80, 41};
    std::vector<Row> all;
    for (SlotId slot = 0; slot < rows; ++slot) {
      begin_sequence(model, slot, prompt[0]);
      if (slot == index) {
        feed(model, slot, {prompt.begin() + 1, prompt.end()}, chunk, Want::kNothing);
        sample_from(model, slot, prompt.back(), 8, 99, 9);
      } else {
        sample_from(model, slot, slot, 0, 7, 9);
      }
      all.push_back({slot, {}, Want::kNext});
    }
    HarnessRun generated;
    std::vector<Emitted> emitted;
    for (int done = 0; done < 9; done += steps) {
      check(model.collect(model.submit(all, std::min(steps, 9 - done)), emitted).value(), "done");
    }
    for (const Emitted& e : emitted) {
      if (e.row != index) continue;
      generated.values.push_back(e.value);
      generated.log_probs.push_back(e.log_prob);
    }
    generated.state = own_state(model, index, 8 + 9);
    return generated;
  }

 private:
  // By kind. All tests share them, because making them takes long.
  inline static std::map<Kind, Bundle> bundles_;
};

TEST_P(LargeModelTest, HowThreadsShareTheWorkDoesNotChangeBits) {
  const CpuModel single = make(1);
  const HarnessRun alone = run(*single.model, 0, 1, 64, 1);
  ASSERT_EQ(alone.values.size(), 9U);
  EXPECT_EQ(run(*single.model, most_rows() / 4, most_rows() / 2, 64, 8), alone);
  for (const int threads : {2, 3}) {
    const CpuModel made = make(threads);
    EXPECT_EQ(run(*made.model, 0, 1, 64, 1), alone) << threads;
    EXPECT_EQ(run(*made.model, 0, 1, 3, 8), alone) << threads;
    EXPECT_EQ(run(*made.model, 4, 6, 64, 2), alone) << threads;
    EXPECT_EQ(run(*made.model, most_rows() - 10, most_rows(), 64, 4), alone) << threads;
  }
}

// Each model has its own thread, as with its scheduler. Some of its batches need one thread, others
// need all.
TEST_P(LargeModelTest, ModelsThatShareThreadsAtTheSameTimeGiveTheSameBits) {
  const CpuModel single = make(1);
  const HarnessRun alone = run(*single.model, 0, 1, 64, 1);
  const auto threads = make_cpu_threads(3);
  ASSERT_TRUE(threads.ok());
  std::vector<std::thread> users;
  for (int user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      const CpuModel made = make(0, *threads);
      for (const int rows : {1, 6, most_rows(), 1}) {
        EXPECT_EQ(run(*made.model, rows / 2, rows, 64, 1 + user), alone) << rows;
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(threads->use_count(), 1) << "models that are gone leave the threads alone";
}

constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kBf16, Precision::kInt8};
INSTANTIATE_TEST_SUITE_P(, LargeModelTest,
                         testing::Combine(testing::ValuesIn(std::begin(kIsas) + 1, std::end(kIsas)),
                                          testing::ValuesIn(kPrecisions),
                                          testing::ValuesIn(kLargeKinds)),
                         network_case_name);
// All instruction sets share the code that distributes work. So three families, which together have
// each kind of operation, suffice for the portable code.
INSTANTIATE_TEST_SUITE_P(Portable, LargeModelTest,
                         testing::Combine(testing::Values(kIsas[0]), testing::ValuesIn(kPrecisions),
                                          testing::Values(Kind::kImage, Kind::kRwkv7,
                                                          Kind::kMamba2)),
                         network_case_name);
INSTANTIATE_TEST_SUITE_P(Hybrids, LargeModelTest,
                         testing::Combine(testing::Values(kIsas[1]),
                                          testing::Values(Precision::kFp32, Precision::kBf16),
                                          testing::Values(Kind::kQwen35, Kind::kExperts)),
                         network_case_name);
// Experts have their own way to share products, which the kernels' own tests cover only by one
// operation at a time.
INSTANTIATE_TEST_SUITE_P(Experts, LargeModelTest,
                         testing::Combine(testing::Values(Isa::kAvx512Bf16, Isa::kAmx),
                                          testing::Values(Precision::kBf16, Precision::kInt8),
                                          testing::Values(Kind::kExperts)),
                         network_case_name);

}  // namespace
}  // namespace runnel
