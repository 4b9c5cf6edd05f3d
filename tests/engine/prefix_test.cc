// Prompts that start from a cached state: which states are cached, who finds them, what they cost
// other calls, and that answers have the same bits as without the cache.

#include <gtest/gtest.h>

#include "engine/metrics.h"
#include "engine/rewinds.h"
#include "models/state/form.h"
#include "tests/engine/harness.h"
#include "tests/kernels/host_backend.h"
#include "tests/kernels/print.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using Values = std::vector<int32_t>;

// Values that differ enough to tell positions apart.
Values counted(int count, int vocabulary = 100) {
  Values values(count);
  for (int i = 0; i < count; ++i) values[i] = (i * i + 3 * i + 1) % vocabulary;
  return values;
}

EngineOptions options_with(int64_t bytes, int64_t least = 1) {
  EngineOptions options;
  options.prefix_cache_bytes = bytes;
  options.prefix_least = least;
  return options;
}

class PrefixTest : public testing::Test {
 protected:
  explicit PrefixTest(const ModelLimits& limits = Harness::default_limits(),
                      const EngineOptions& options = options_with(1 << 20))
      : harness_(fake_spec(), limits, options) {}

  // Runs a call to its end and returns its values.
  Values run(const GenerateRequest& request) {
    last_ = harness_.generate(request);
    harness_.run();
    EXPECT_TRUE(last_->end && last_->end->ok());
    return last_->values[0];
  }
  Values run(const Values& prompt, int64_t max_values = 3) {
    return run(request_of(prompt, max_values));
  }
  int64_t cached() const { return last_->finished[0].cached_values; }
  const EngineMetrics& metrics() const { return harness_.engine->metrics(); }

  Harness harness_;
  std::shared_ptr<Reader> last_;
};

TEST_F(PrefixTest, ARepeatedPromptAndItsAnswerAreNotReadAgain) {
  const Values prompt = counted(20);
  const Values answer = run(prompt);
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(run(prompt), answer);
  EXPECT_EQ(cached(), 19) << "the last value is read with the first that is sampled";
  const Values longer = joined(joined(prompt, answer), counted(5));
  EXPECT_EQ(run(longer), FakeModel::expected(fake_spec(), longer, 1, 0, 3));
  EXPECT_EQ(cached(), 22) << "all but the last value of the answer";
  EXPECT_EQ(last_->finished[0].prompt_values, 28);
  EXPECT_EQ(metrics().prefix_hits.value(), 2);
  EXPECT_EQ(metrics().prefix_misses.value(), 1);
  EXPECT_EQ(metrics().prefix_values.value(), 19 + 22);
  EXPECT_EQ(metrics().values_consumed.value(), 19 + 5);
}

// An answer after a cache hit could have other bits than one without.
TEST(Prefix, NothingIsCachedIfBatchesChangeBits) {
  const auto cached_of_a_second_call = [](bool is_unsteady) {
    auto model = std::make_unique<FakeModel>(fake_spec(), Harness::default_limits());
    model->is_unsteady = is_unsteady;
    Harness harness(std::move(model), options_with(1 << 20));
    harness.generate(request_of(counted(20), 3));
    harness.run();
    const auto second = harness.generate(request_of(counted(20), 3));
    harness.run();
    return second->finished[0].cached_values;
  };
  EXPECT_EQ(cached_of_a_second_call(false), 19);
  EXPECT_EQ(cached_of_a_second_call(true), 0);
}

TEST_F(PrefixTest, AStateIsKeptAtTheEndOfTheSharedPart) {
  GenerateRequest request = request_of(counted(20), 2);
  request.shared = 12;
  run(request);
  Values other = counted(12);
  other.resize(20, 7);
  EXPECT_EQ(run(other), FakeModel::expected(fake_spec(), other, 1, 0, 3));
  EXPECT_EQ(cached(), 12);
}

TEST_F(PrefixTest, ASharedPartLongerThanThePromptIsTheWholePrompt) {
  GenerateRequest request = request_of(counted(20), 2);
  for (const int64_t shared : {int64_t{20}, int64_t{1} << 40}) {
    request.shared = shared;
    run(request);
  }
  EXPECT_EQ(cached(), 19);
}

TEST_F(PrefixTest, EverySampleBeginsAtAKeptState) {
  run(counted(20));
  GenerateRequest request = request_of(counted(20), 4, 5);
  request.samples = 3;
  run(request);
  EXPECT_EQ(cached(), 19);
  for (int sample = 0; sample < 3; ++sample) {
    EXPECT_EQ(last_->values[sample], FakeModel::expected(fake_spec(), counted(20), 5, sample, 4));
  }
}

TEST_F(PrefixTest, AKeptSessionBeginsAtACachedStateToo) {
  run(counted(20));
  GenerateRequest request = request_of(counted(20), 4);
  request.keep = true;
  run(request);
  EXPECT_EQ(cached(), 19);
  GenerateRequest next = request_of({1, 2}, 3);
  next.session = last_->started->session;
  const Values known = joined(joined(counted(20), last_->values[0]), {1, 2});
  EXPECT_EQ(run(next), FakeModel::expected(fake_spec(), known, 1, 0, 3));
  EXPECT_EQ(cached(), 0) << "a session has no prefix to look for";
}

TEST_F(PrefixTest, CallersDoNotSharePrefixes) {
  GenerateRequest request = request_of(counted(20), 2);
  request.caller.name = "ada";
  run(request);
  request.caller.name = "bob";
  run(request);
  EXPECT_EQ(cached(), 0);
  run(request);
  EXPECT_EQ(cached(), 19);
}

TEST_F(PrefixTest, CachedStatesCountAsFreeAndAreEvictedWhenSlotsAreNeeded) {
  for (int i = 0; i < 6; ++i) run(Values(20, i));
  EXPECT_EQ(harness_.engine->stats().sessions_free, 8);
  EXPECT_EQ(harness_.engine->stats().prefix_bytes, 8 * 8) << "all slots are full of them";
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(harness_.create("s" + std::to_string(i)).ok());
  EXPECT_EQ(harness_.engine->stats().prefix_bytes, 0);
  EXPECT_EQ(harness_.create("more").status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(harness_.remove("s3").ok());
  EXPECT_EQ(run(Values(20, 5)), FakeModel::expected(fake_spec(), Values(20, 5), 1, 0, 3));
  EXPECT_EQ(cached(), 0);
}

TEST_F(PrefixTest, AStateThatIsNotUsedExpires) {
  run(counted(20));
  harness_.clock.advance(EngineOptions().idle_timeout + std::chrono::seconds(2));
  harness_.run();
  EXPECT_EQ(harness_.engine->stats().prefix_bytes, 0);
}

TEST_F(PrefixTest, TheValuesThatACancelledCallHasReadAreCached) {
  const auto reader = harness_.generate(request_of(counted(60), 1000));
  for (int turn = 0; turn < 6; ++turn) harness_.turn();
  reader->stream->cancel();
  harness_.run();
  ASSERT_EQ(reader->end->code(), Code::kCancelled);
  const Values longer = joined(counted(60), {1, 2});
  EXPECT_EQ(run(longer), FakeModel::expected(fake_spec(), longer, 1, 0, 3));
  EXPECT_EQ(cached(), 59);
}

class OnePrefixSlotTest : public PrefixTest {
 protected:
  OnePrefixSlotTest() : PrefixTest({.slots = 2, .rows = 8, .values = 16, .steps = 1}) {}
};

TEST_F(OnePrefixSlotTest, TheCachedStateThatACallNeedsIsEvictedLast) {
  run(counted(20));
  EXPECT_EQ(harness_.engine->stats().prefix_bytes, 2 * 8);
  run(counted(20));  // takes one of the two slots
  EXPECT_EQ(cached(), 19);
  GenerateRequest request = request_of(counted(20), 3, 9);
  request.samples = 2;  // takes both
  run(request);
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(last_->values[1], FakeModel::expected(fake_spec(), counted(20), 9, 1, 3));
}

class SixPrefixSlotsTest : public PrefixTest {
 protected:
  SixPrefixSlotsTest() : PrefixTest({.slots = 6, .rows = 8, .values = 16, .steps = 1}) {}
};

// A program asks for a title, tags and follow-ups after each turn. The client does not send the
// answers back, as if they were all reasoning text.
TEST_F(SixPrefixSlotsTest, ThreeShortCallsPerTurnDoNotEvictThePrefixOfTheChat) {
  Values chat = counted(20);
  int64_t kept = 0;
  for (int turn = 0; turn < 8; ++turn) {
    GenerateRequest request = request_of(chat, 3);
    request.shared = std::ssize(chat) - 2;
    run(request);
    EXPECT_EQ(cached(), kept) << turn;
    for (int call = 0; call < 3; ++call) run(Values(20, 3 * turn + call));
    kept = *request.shared;
    chat.resize(static_cast<size_t>(kept));
    chat = joined(chat, Values(10, turn));
  }
}

// Cached prefixes of old conversations leave room for those of new ones.
TEST_F(SixPrefixSlotsTest, PrefixesOfOldConversationsLeaveRoomForANewOne) {
  for (int i = 0; i < 4; ++i) {
    for (int again = 0; again < 2; ++again) run(Values(20, i));
  }
  run(Values(20, 50));
  run(Values(20, 3));
  run(Values(20, 50));
  EXPECT_EQ(cached(), 19);
}

TEST(Prefix, CachedStatesKeepToTheBoundOfBytes) {
  Harness harness(fake_spec(), Harness::default_limits(), options_with(3 * 8 + 7));
  for (int i = 0; i < 6; ++i) {
    harness.generate(request_of(Values(20, i), 3));
    harness.run();
    EXPECT_LE(harness.engine->stats().prefix_bytes, 3 * 8);
  }
  EXPECT_EQ(harness.engine->stats().prefix_bytes, 3 * 8);
}

TEST(Prefix, WithoutACacheNothingIsKeptOrCounted) {
  Harness harness;
  for (int i = 0; i < 2; ++i) {
    const auto reader = harness.generate(request_of(counted(40), 3));
    harness.run();
    EXPECT_EQ(reader->finished[0].cached_values, 0);
  }
  EXPECT_EQ(harness.engine->stats().prefix_bytes, 0);
  EXPECT_EQ(harness.engine->metrics().prefix_misses.value(), 0);
}

TEST(Prefix, ShortPrefixesAreNotKept) {
  Harness harness(fake_spec(), Harness::default_limits(), options_with(1 << 20, 16));
  for (const int values : {2, 3}) {
    harness.generate(request_of(counted(12), values));
    harness.run();
  }
  EXPECT_EQ(harness.engine->stats().prefix_bytes, 0);
  harness.generate(request_of(counted(12), 5));
  harness.run();
  EXPECT_EQ(harness.engine->stats().prefix_bytes, 8) << "with its answer it is long enough";
}

TEST(Prefix, APrefixIncludesTheFirstValueOfTheModel) {
  Harness harness(fake_spec(0, true), Harness::default_limits(), options_with(1 << 20));
  GenerateRequest request = request_of(counted(20), 3);
  request.begin = true;
  request.shared = 10;
  for (const int64_t cached : {0, 11}) {
    const auto reader = harness.generate(request);
    harness.run();
    EXPECT_EQ(reader->finished[0].cached_values, cached);
    EXPECT_EQ(reader->values[0],
              FakeModel::expected(fake_spec(0, true), joined({7}, counted(20)), 1, 0, 3));
  }
}

TEST(Prefix, WithRewindAKeptSessionReadsItsWholePrompt) {
  EngineOptions options = options_with(1 << 20);
  options.rewind_values = 30;
  options.rewind_every = 4;
  ModelLimits limits = Harness::default_limits();
  limits.slots *= static_cast<int>(1 + snapshots_of(options, limits.steps));
  Harness harness(fake_spec(), limits, options);
  GenerateRequest request = request_of(counted(20), 3);
  request.keep = true;
  for (int i = 0; i < 2; ++i) {
    const auto reader = harness.generate(request);
    harness.run();
    EXPECT_EQ(reader->finished[0].cached_values, 0);
    EXPECT_TRUE(harness.rewind(reader->started->session, 5).ok());
  }
}

// --- Bits ---

constexpr int kVocabulary = 11;
constexpr int kPrompt = 14;

// Runs a call that keeps its session. `cached`: the number of values that it must find cached.
HarnessRun run_kept(Harness& harness, const Values& prompt, int64_t cached) {
  GenerateRequest request = request_of(prompt, 6, 77);
  request.sampling.temperature = 0.9F;
  request.keep = true;
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reader->end && reader->end->ok());
  EXPECT_EQ(reader->finished[0].cached_values, cached);
  auto state = harness.export_state(reader->started->session);
  EXPECT_TRUE(state.ok());
  clear_unused(harness.engine->layout(), state->position - 1, state->bytes);
  return {reader->values[0], reader->log_probs[0], state->bytes};
}

// Makes the engine cache the state after the first `length` values.
void warm(Harness& harness, Values prompt, int64_t length) {
  prompt.resize(static_cast<size_t>(length) + 1, 0);
  GenerateRequest request = request_of(prompt, 0);
  request.shared = length;
  harness.generate(request);
  harness.run();
}

struct Family {
  const char* name;
  Spec (*spec)();

  friend void PrintTo(const Family& of, std::ostream* out) { *out << of.name; }
};

class PrefixBitsTest : public testing::TestWithParam<std::tuple<Precision, Family>> {
 protected:
  CpuModel make(int batch_values) const {
    const auto& [precision, family] = GetParam();
    const Bundle bundle = random_bundle(family.spec(), 3);
    return make_cpu_model(precision == Precision::kBlocks ? in_blocks(bundle) : bundle,
                          {kIsas[0], 2},
                          {.slots = 8, .rows = 8, .values = batch_values, .steps = 1}, precision);
  }
  HarnessRun cold(const Values& prompt) const {
    CpuModel made = make(64);
    Harness harness(std::move(made.model));
    return run_kept(harness, prompt, 0);
  }
};

TEST_P(PrefixBitsTest, AtEveryLengthOfTheSharedPart) {
  const Values prompt = counted(kPrompt, kVocabulary);
  const HarnessRun alone = cold(prompt);
  for (const int batch_values : {64, 5, 1}) {
    for (int length = 1; length < kPrompt; ++length) {
      CpuModel made = make(batch_values);
      Harness harness(std::move(made.model), options_with(int64_t{1} << 40));
      warm(harness, prompt, length);
      EXPECT_EQ(run_kept(harness, prompt, length), alone) << length;
    }
  }
}

TEST_P(PrefixBitsTest, AfterASampledAnswer) {
  CpuModel made = make(64);
  Harness harness(std::move(made.model), options_with(int64_t{1} << 40));
  Values prompt = counted(4, kVocabulary);
  for (int turn = 0; turn < 3; ++turn) {
    const auto answered = harness.generate(request_of(prompt, 5));
    harness.run();
    const int64_t read = std::ssize(prompt) + 4;
    prompt = joined(joined(prompt, answered->values[0]), counted(6, kVocabulary));
    EXPECT_EQ(run_kept(harness, prompt, read), cold(prompt)) << turn;
  }
}

std::string case_name(const testing::TestParamInfo<std::tuple<Precision, Family>>& info) {
  const auto [precision, family] = info.param;
  return std::string(precision_name(precision)) + family.name;
}

INSTANTIATE_TEST_SUITE_P(
    , PrefixBitsTest,
    testing::Combine(
        testing::Values(Precision::kFp32, Precision::kInt8),
        testing::Values(
            Family{"LinearTransformer", small_symbol_spec}, Family{"Rwkv7", small_rwkv7_spec},
            Family{"Mamba2", small_mamba2_spec}, Family{"Mamba1", small_mamba1_spec},
            Family{"Qwen35", [] { return small_hybrid_spec(HybridStyle::kQwen35); }},
            Family{"GatedDeltaNet",
                   [] { return small_gated_linear_spec(GatedMixer::kGatedDeltaNet); }})),
    case_name);

INSTANTIATE_TEST_SUITE_P(Blocks, PrefixBitsTest,
                         testing::Combine(testing::Values(Precision::kBlocks),
                                          testing::Values(Family{"Rwkv7", small_blocks_spec})),
                         case_name);

// A model that takes prompts in chunks caches states only at the ends of chunks, because values
// read in chunks and values read in steps give different bits.
TEST(PrefixBits, InAPromptReadInChunks) {
  const auto made = [](Backend& backend) {
    auto model = make_model(random_bundle(small_symbol_spec(), 3), backend,
                            {.slots = 6, .rows = 6, .values = 100, .steps = 2});
    return std::move(*model);
  };
  const auto backend = [] { return cuda::make_host_backend({.chunks = true}); };
  const Values prompt = counted(200, kVocabulary);
  const auto alone_on = backend();
  Harness alone(made(*alone_on));
  const HarnessRun cold = run_kept(alone, prompt, 0);
  for (const int64_t shared : {70, 128, 180, 199}) {
    const auto warm_on = backend();
    auto model = made(*warm_on);
    const int64_t chunk = model->limits().chunk;
    ASSERT_GT(chunk, 1);
    Harness harness(std::move(model), options_with(int64_t{1} << 40));
    warm(harness, prompt, shared);
    EXPECT_EQ(run_kept(harness, prompt, shared / chunk * chunk), cold) << shared;
  }
}

}  // namespace
}  // namespace runnel
