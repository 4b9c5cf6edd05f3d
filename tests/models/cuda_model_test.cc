// The whole network with the GPU's kernels, run on the host and on a GPU if there is one. It equals
// the CPU's up to the order of sums, and has the same bits in any batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/cuda/product_library.h"
#include "tests/kernels/host_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr ModelLimits kLimits = {.slots = 8, .rows = 8, .values = 72, .steps = 8};
constexpr int kCount = 12;

// A family other than the linear transformer.
struct GpuFamily {
  const char* name;
  Spec (*spec)();
};

// Heads whose states a kernel keeps in registers, with enough columns for two blocks.
Spec spec_in_registers() {
  Spec spec = small_gated_linear_spec(GatedMixer::kGatedDeltaNet);
  auto& sizes = std::get<GatedLinearSpec>(spec.model);
  sizes.dk = 16;
  sizes.dv = 80;
  return spec;
}

template <HybridStyle kStyle>
Spec hybrid_spec() {
  Spec spec = small_hybrid_spec(kStyle);
  std::get<HybridSpec>(spec.model).factors.embedding =
      kStyle == HybridStyle::kGranite ? 12.0F : 1.0F;
  return spec;
}

constexpr GpuFamily kGpuFamilies[] = {
    {"Gla", [] { return small_gated_linear_spec(GatedMixer::kGla); }},
    {"RetNet", [] { return small_gated_linear_spec(GatedMixer::kRetNet); }},
    {"DeltaNet", [] { return small_gated_linear_spec(GatedMixer::kDeltaNet); }},
    {"GatedDeltaNet", [] { return small_gated_linear_spec(GatedMixer::kGatedDeltaNet); }},
    {"GatedDeltaNetInRegisters", spec_in_registers},
    {"Kda", [] { return small_gated_linear_spec(GatedMixer::kKda); }},
    {"Hgrn2", [] { return small_gated_linear_spec(GatedMixer::kHgrn2); }},
    {"Rwkv6", [] { return small_rwkv6_spec(Rwkv6Version::kSix); }},
    {"Rwkv5", [] { return small_rwkv6_spec(Rwkv6Version::kFive); }},
    {"Mamba1", [] { return small_mamba1_spec(); }},
    {"Qwen35", hybrid_spec<HybridStyle::kQwen35>},
    {"Lfm2", hybrid_spec<HybridStyle::kLfm2>},
    {"Granite", hybrid_spec<HybridStyle::kGranite>},
    {"FalconH1", hybrid_spec<HybridStyle::kFalconH1>},
    {"NemotronH", hybrid_spec<HybridStyle::kNemotronH>},
    {"Qwen35Experts", [] { return small_experts_spec(HybridStyle::kQwen35); }},
    {"Lfm2Experts", [] { return small_experts_spec(HybridStyle::kLfm2); }},
    {"GraniteExperts", [] { return small_experts_spec(HybridStyle::kGranite); }},
    {"NemotronHExperts", [] { return small_experts_spec(HybridStyle::kNemotronH); }},
    {"Softmax", small_softmax_spec}};
constexpr GpuFamily kInBlocks = {"Rwkv7", small_blocks_spec};

struct Case {
  bool on_gpu;
  bool image;
  Precision precision;
  CudaOptions options = {};  // .library on the host: the fake cuBLASLt
  bool gated = false;        // with random features
  const GpuFamily* family = nullptr;

  std::string label() const {
    return std::string(on_gpu ? "Gpu" : "Host") +
           (family != nullptr ? family->name
            : gated           ? "Gated"
            : image           ? "Image"
                              : "Symbols") +
           (precision == Precision::kFp32     ? "Fp32"
            : precision == Precision::kBlocks ? "Blocks"
                                              : "Bf16") +
           (options.replay ? "Replay" : "") + (options.chunks ? "Chunks" : "");
  }
  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.label(); }
};

Spec spec_of(bool image) {
  Spec spec = image ? small_image_spec() : small_symbol_spec();
  spec.image.reset();
  if (image) spec.positions = 400;
  return spec;
}

std::unique_ptr<Backend> make_on_host(const CudaOptions& options) {
  return cuda::make_host_backend(options, cuda::ThreadOrder::kShuffled);
}

std::vector<int32_t> prompt_of(int count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7 % 11);
  return values;
}

class CudaModelTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const CudaOptions& options = GetParam().options;
    const auto no_cuda = [](const Status& status) {
      return status.code() == Code::kFailedPrecondition;
    };
    if (!GetParam().on_gpu) {
      if (options.library && no_cuda(cuda::ProductLibrary::open({cuda::kFakeLibrary}).status())) {
        GTEST_SKIP() << "this build has no CUDA";
      }
      backend_ = make_on_host(options);
      return;
    }
    auto backend = make_cuda_backend(options);
    if (no_cuda(backend.status()) || backend.status().code() == Code::kNotFound) {
      GTEST_SKIP() << backend.status().message();
    }
    ASSERT_TRUE(backend.ok()) << backend.status().to_string();
    backend_ = std::move(*backend);
  }

  Bundle bundle() const {
    const GpuFamily* const family = GetParam().family;
    const Spec spec = family != nullptr  ? family->spec()
                      : GetParam().gated ? small_gated_spec()
                                         : spec_of(GetParam().image);
    const Bundle bundle = random_bundle(spec, 5);
    return GetParam().precision == Precision::kBlocks ? in_blocks(bundle) : bundle;
  }
  void expect_equals_the_cpu();
  std::unique_ptr<Model> make() { return make_on(*backend_); }
  std::unique_ptr<Model> make_on(Backend& backend) {
    auto model = make_model(bundle(), backend, kLimits, GetParam().precision);
    EXPECT_TRUE(model.ok());
    return std::move(*model);
  }
  static std::vector<int32_t> prompt() { return prompt_of(9); }
  // A prompt of 9 values and 12 sampled values.
  static HarnessRun run(Model& model, SlotId slot, int chunk, int steps) {
    const auto values = prompt();
    begin_sequence(model, slot, values[0]);
    feed(model, slot, {values.begin() + 1, values.end()}, chunk, Want::kNothing);
    sample_from(model, slot, values.back(), static_cast<int64_t>(values.size()) - 1, 99, kCount);
    return generate(model, slot, kCount, steps);
  }

 private:
  std::unique_ptr<Backend> backend_;
};

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

void CudaModelTest::expect_equals_the_cpu() {
  // A small hybrid in bf16 differs too much from fp32 to compare, so the CPU uses bf16, too.
  const Bundle bundle = this->bundle();
  const Precision precision = GetParam().precision;
  const bool caches = bundle.spec.position_bytes() > 0;
  const bool as_here = caches || precision == Precision::kBlocks;
  const CpuModel cpu = make_cpu_model(bundle, {}, kLimits, as_here ? precision : Precision::kFp32);
  const std::unique_ptr<Model> model = make();
  const double tolerance = precision == Precision::kBf16 ? 3e-2 : 1e-4;
  std::vector<int32_t> values(40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 5 % 11);
  begin_sequence(*cpu.model, 0, 1);
  begin_sequence(*model, 3, 1);
  const std::vector<float> expected = feed(*cpu.model, 0, values, 7, Want::kScores);
  const std::vector<float> found = feed(*model, 3, values, 7, Want::kScores);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
  }
  if (GetParam().options.replay) return;  // its state has another form
  std::vector<float> state = floats_of(state_bytes(*cpu.model, 0));
  std::vector<float> there = floats_of(state_bytes(*model, 3));
  ASSERT_EQ(there.size(), state.size());
  if (caches && precision == Precision::kBf16) {  // compares all but the bf16 pages
    state.resize(static_cast<size_t>(model->layout().fixed_bytes() / 4));
    there.resize(state.size());
  }
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < state.size(); ++i) {
    error += std::pow(double{there[i]} - state[i], 2);
    size += std::pow(double{state[i]}, 2);
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size));
}

class CudaLibraryModelTest : public CudaModelTest {};

TEST_P(CudaModelTest, EqualsTheCpu) { expect_equals_the_cpu(); }
TEST_P(CudaLibraryModelTest, EqualsTheCpu) { expect_equals_the_cpu(); }

TEST_P(CudaModelTest, BitsDoNotDependOnChunksStepsOrSlot) {
  const std::unique_ptr<Model> model = make();
  const HarnessRun alone = run(*model, 0, 64, 1);
  EXPECT_EQ(alone.values.size(), size_t{kCount});
  for (const int chunk : {1, 3, 7}) EXPECT_EQ(run(*model, 1, chunk, 1), alone) << chunk;
  for (const int steps : {2, 5, 8}) EXPECT_EQ(run(*model, 7, 64, steps), alone) << steps;
}

// Eight sequences in one batch. One of them is the sequence that ran alone.
TEST_P(CudaModelTest, BitsDoNotDependOnTheBatch) {
  const std::unique_ptr<Model> model = make();
  const HarnessRun alone = run(*model, 5, 64, 1);
  std::vector<Row> rows;
  for (SlotId slot = 0; slot < kLimits.slots; ++slot) {
    auto values = prompt();
    if (slot != 5) values.back() = slot;
    begin_sequence(*model, slot, values[0]);
    feed(*model, slot, {values.begin() + 1, values.end()}, 64, Want::kNothing);
    const uint64_t seed = slot == 5 ? 99 : static_cast<uint64_t>(slot);
    // Some stop before the others.
    sample_from(*model, slot, values.back(), 8, seed, slot == 5 ? kCount : slot + 1);
    rows.push_back({slot, {}, Want::kNext});
  }
  std::vector<Emitted> emitted;
  HarnessRun together;
  for (int step = 0; step < kCount; step += 4) {
    emitted.clear();
    finish(*model, model->submit(rows, 4), emitted);
    for (const Emitted& at : emitted) {
      if (at.row != 5) continue;
      together.values.push_back(at.value);
      together.log_probs.push_back(at.log_prob);
    }
  }
  together.state = state_bytes(*model, 5);
  EXPECT_EQ(together, alone);
}

TEST_P(CudaModelTest, PartsNameEveryByteOfAState) {
  const std::unique_ptr<Model> model = make();
  expect_parts_tile_the_state(model->layout());
  if (GetParam().family != nullptr) return;
  EXPECT_EQ(model->layout().parts[2].name,
            GetParam().options.replay ? "layers.0.log" : "layers.1.S");
}

// Moves the state at each position between two flushes.
TEST_P(CudaModelTest, AMovedStateContinuesWithTheSameBits) {
  const std::unique_ptr<Model> model = make();
  const auto values = prompt();
  for (int count = 1; count <= 9; ++count) {
    begin_sequence(*model, 2, values[0]);
    sample_from(*model, 2, values[0], 0, 7, 40);
    const int32_t pending = generate(*model, 2, count).values.back();
    model->copy(2, 3, count);
    model->write(6, 0, state_bytes(*model, 2));
    sample_from(*model, 6, pending, count, 7, 40 - count);
    const HarnessRun expected = generate(*model, 2, 9);
    EXPECT_EQ(generate(*model, 3, 9, 4), expected) << count;
    EXPECT_EQ(generate(*model, 6, 9, 8), expected) << count;
  }
}

// Writes NaN, in either type, to everything after the fixed parts of a state.
void poison_pages(Model& model, SlotId slot) {
  const StateLayout& layout = model.layout();
  const std::vector<std::byte> poison(layout.state_bytes - layout.fixed_bytes(), std::byte{0xff});
  model.write(slot, layout.fixed_bytes(), poison);
}

constexpr GpuFamily kAttendingFamilies[] = {{"FalconH1", hybrid_spec<HybridStyle::kFalconH1>},
                                            {"Softmax", small_softmax_spec}};

// A prompt of several pages, steps up to the last position, and a copy of the sequence.
TEST(CudaModelAttention, OldContentsOfPagesDoNotMatter) {
  for (const GpuFamily& family : kAttendingFamilies) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      SCOPED_TRACE(family.name);
      const auto backend = make_on_host({});
      const auto model = make_model(random_bundle(family.spec(), 5), *backend, kLimits, precision);
      ASSERT_TRUE(model.ok()) << model.status().to_string();
      std::vector<int32_t> values(200);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * i % 11);
      const auto run = [&](SlotId slot, SlotId copy, int chunk, int steps) {
        for (const SlotId each : {slot, copy}) poison_pages(**model, each);
        begin_sequence(**model, slot, values[0]);
        feed(**model, slot, {values.begin() + 1, values.end()}, chunk, Want::kNothing);
        (*model)->copy(slot, copy, 199);
        sample_from(**model, copy, values.back(), 199, 5, 101);
        HarnessRun found = generate(**model, copy, 101, steps);
        found.state = own_state(**model, copy, 300);
        return found;
      };
      const HarnessRun whole = run(0, 1, 72, 1);
      EXPECT_EQ(whole.values.size(), 101U);
      EXPECT_EQ(run(3, 2, 5, 8), whole);
      for (const float at : whole.log_probs) ASSERT_TRUE(std::isfinite(at));
    }
  }
}

// A snapshot has only the recurrent parts. To rewind, a session restores them and consumes the
// values after the snapshot again.
TEST(CudaModelAttention, RewindsByConsumingAgain) {
  const auto backend = make_on_host({});
  ModelLimits limits = kLimits;
  limits.slots_of_session = 2;
  const auto model =
      make_model(random_bundle(hybrid_spec<HybridStyle::kQwen35>(), 5), *backend, limits).value();
  const SlotId snapshot = 4;  // after the four sessions
  const auto values = prompt_of(80);
  begin_sequence(*model, 0, values[0]);
  feed(*model, 0, {values.begin() + 1, values.begin() + 70}, 64, Want::kNothing);
  model->copy_piece(0, snapshot, 0, model->layout().fixed_bytes());
  const auto rest = [&] {
    feed(*model, 0, {values.begin() + 70, values.end()}, 7, Want::kNothing);
    sample_from(*model, 0, values.back(), 79, 5, 20);
    return generate(*model, 0, 20);
  };
  const HarnessRun expected = rest();
  model->copy_piece(snapshot, 0, 0, model->layout().fixed_bytes());
  Control control;
  control.position = 69;
  control.pending = values[69];
  model->set(0, control, false);
  EXPECT_EQ(rest(), expected);
}

// Greedy values equal the CPU's, and bits do not depend on chunks, steps or the slot.
TEST(CudaModelPenalties, GiveTheCpusGreedyValues) {
  ModelLimits limits = kLimits;
  limits.recent = 6;
  const Bundle bundle = random_bundle(spec_of(false), 5);
  const CpuModel cpu = make_cpu_model(bundle, {}, limits);
  const auto backend = make_on_host({});
  const auto model = make_model(bundle, *backend, limits).value();
  EXPECT_EQ(model->limits().recent, 6);
  const auto start = [&](Model& on, SlotId slot, bool greedy, int chunk) {
    const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    begin_sequence(on, slot, prompt[0]);
    feed(on, slot, {prompt.begin() + 1, prompt.end()}, chunk, Want::kNothing);
    sample_from(on, slot, prompt.back(), 8, 99, kCount, 0, {.greedy = greedy});
    const Penalties penalties = {2.0F, 0.5F, 0.25F, {{1, 0.5F}, {7, -1.0F}}};
    on.penalize(slot, {std::make_shared<const Penalties>(penalties), 9});
  };
  const auto run = [&](Model& on, SlotId slot, bool greedy, int chunk, int steps) {
    start(on, slot, greedy, chunk);
    return generate(on, slot, kCount, steps);
  };
  EXPECT_EQ(run(*model, 0, true, 64, 1).values, run(*cpu.model, 0, true, 64, 1).values);
  const HarnessRun alone = run(*model, 0, false, 64, 1);
  EXPECT_EQ(run(*model, 7, false, 1, 3), alone);
  EXPECT_EQ(run(*model, 2, false, 4, 8), alone);
  start(*model, 2, false, 64);
  generate(*model, 2, 5, 5);
  model->copy(2, 3, 13);  // together with its penalties
  const HarnessRun rest = generate(*model, 3, kCount - 5, 4);
  EXPECT_EQ(rest.values, std::vector<int32_t>(alone.values.begin() + 5, alone.values.end()));
  EXPECT_EQ(rest.state, alone.state);
}

// Scoring a prompt whole or cut at chunks gives the same bits. Stepping gives nearby results.
TEST(CudaModelChunks, HaveTheSameBitsWhereverTheyAreCut) {
  std::vector<int32_t> values(200);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * i % 251);
  const auto scored = [&](const CudaOptions& options, int cut) {
    const auto backend = make_on_host(options);
    const auto model = make_model(random_bundle(spec_of(true), 5), *backend,
                                  {.slots = 4, .rows = 4, .values = 256, .steps = 1});
    EXPECT_EQ((*model)->limits().chunk, options.chunks ? 64 : 1);
    begin_sequence(**model, 3, 1);
    std::vector<float> found = feed(**model, 3, values, cut, Want::kScores);
    const std::vector<float> state = floats_of(state_bytes(**model, 3));
    found.insert(found.end(), state.begin(), state.end());
    return found;
  };
  const std::vector<float> whole = scored({.chunks = true}, 200);
  EXPECT_EQ(scored({.chunks = true}, 64), whole);
  EXPECT_EQ(scored({.chunks = true}, 128), whole);
  const std::vector<float> stepped = scored({}, 200);
  EXPECT_NE(whole, stepped);
  ASSERT_EQ(whole.size(), stepped.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(whole[i], stepped[i], 1e-4 * (1 + std::abs(stepped[i]))) << i;
  }
}

TEST(CudaModelChunks, BatchValuesMustHoldAChunkAndAllDecodingRows) {
  const auto backend = make_on_host({.chunks = true});
  const auto model = make_model(random_bundle(spec_of(true), 5), *backend,
                                {.slots = 4, .rows = 4, .values = 67, .steps = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(model.status().message(),
            "prompts in chunks of 64 need batch_values of at least 68 (batch_rows + 64), which is "
            "67: raise it, or take prompts in steps");
}

TEST(CudaModelInt8, IsOnlyForACpu) {
  const auto backend = make_on_host({});
  const auto model =
      make_model(random_bundle(spec_of(true), 5), *backend, kLimits, Precision::kInt8);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(model.status().message(),
              testing::EndsWith("precision int8 is for a CPU alone; ask for backend cpu, or for "
                                "precision bf16 or fp32"));
}

// The form of the state and the numerics id differ, but the values are the same.
TEST(CudaModelReplay, GivesTheBitsOfThePlainForm) {
  for (const bool image : {false, true}) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const auto generated = [&](const CudaOptions& options) {
        const auto backend = make_on_host(options);
        const auto model =
            make_model(random_bundle(spec_of(image), 5), *backend, kLimits, precision);
        EXPECT_EQ((*model)->layout().numerics,
                  std::string("cuda/host/") + (precision == Precision::kFp32 ? "fp32" : "bf16") +
                      (options.replay ? "/step+replay8" : "/step") + "/state-fp32");
        begin_sequence(**model, 1, 1);
        sample_from(**model, 1, 1, 0, 99, 20);
        HarnessRun found = generate(**model, 1, 20, 3);
        found.state.clear();
        return found;
      };
      EXPECT_EQ(generated({.replay = true}), generated({}));
    }
  }
}

// Heads whose queries alone need more than a block's shared memory.
TEST(CudaModelLimits, SizesTooLargeForTheGpuFailTheFirstStepOnly) {
  Spec spec = small_symbol_spec();
  sizes_of(spec).heads = 1;
  sizes_of(spec).query_size = 20'000;
  const Bundle bundle = random_bundle(spec, 5);
  const std::unique_ptr<Backend> backend = make_on_host({});
  auto model = make_model(bundle, *backend, kLimits);
  ASSERT_TRUE(model.ok());
  begin_sequence(**model, 0, 1);
  const Row row = {0, {}, Want::kNext};
  std::vector<Emitted> emitted;
  const Result<bool> done = (*model)->collect((*model)->submit({&row, 1}, 1), emitted);
  EXPECT_EQ(done.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(done.status().message().find("too large for this GPU"), std::string::npos);
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.label(); }

INSTANTIATE_TEST_SUITE_P(
    , CudaModelTest,
    testing::Values(Case{false, false, Precision::kFp32}, Case{false, true, Precision::kFp32},
                    Case{false, true, Precision::kBf16},
                    Case{false, false, Precision::kFp32, {.replay = true}},
                    Case{false, true, Precision::kBf16, {.replay = true}},
                    Case{false, false, Precision::kFp32, {}, true},
                    Case{false, false, Precision::kBf16, {}, true},
                    Case{false, false, Precision::kBlocks, {}, false, &kInBlocks},
                    Case{true, false, Precision::kBlocks, {}, false, &kInBlocks},
                    Case{true, false, Precision::kFp32},
                    Case{true, false, Precision::kBf16, {}, true},
                    Case{true, true, Precision::kFp32}, Case{true, true, Precision::kBf16},
                    Case{true, true, Precision::kBf16, {.replay = true}},
                    Case{true, true, Precision::kBf16, {.chunks = true}}),
    case_name);
std::vector<Case> family_cases() {
  std::vector<Case> cases;
  for (const GpuFamily& family : kGpuFamilies) {
    cases.push_back({false, false, Precision::kFp32, {}, false, &family});
    cases.push_back({true, false, Precision::kFp32, {}, false, &family});
    if (family.spec().position_bytes() == 0) continue;
    cases.push_back({false, false, Precision::kBf16, {}, false, &family});
    cases.push_back({true, false, Precision::kBf16, {}, false, &family});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, CudaModelTest, testing::ValuesIn(family_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(, CudaLibraryModelTest,
                         testing::Values(Case{false, false, Precision::kFp32, {.library = true}},
                                         Case{false, true, Precision::kBf16, {.library = true}},
                                         Case{true, false, Precision::kFp32, {.library = true}},
                                         Case{true, true, Precision::kBf16, {.library = true}}),
                         case_name);

}  // namespace
}  // namespace runnel
