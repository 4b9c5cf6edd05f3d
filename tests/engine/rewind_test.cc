// Rewinding sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/fields.h"
#include "engine/rewinds.h"
#include "tests/engine/harness.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using testing::HasSubstr;

EngineOptions options_of(int64_t values, int64_t every) {
  EngineOptions options;
  options.rewind_values = values;
  options.rewind_every = every;
  return options;
}

// Limits with room for `sessions` and their snapshots.
ModelLimits limits_of(const EngineOptions& options, int sessions, int steps = 1) {
  const auto each = static_cast<int>(1 + snapshots_of(options, steps));
  return {
      .slots = sessions * each, .slots_of_session = each, .rows = 4, .values = 16, .steps = steps};
}

Harness harness_of(int64_t values, int64_t every, int steps = 1) {
  const EngineOptions options = options_of(values, every);
  return Harness(fake_spec(), limits_of(options, 4, steps), options);
}

std::vector<int32_t> counted(int count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

std::shared_ptr<Reader> call(Harness& harness, const std::string& id, std::vector<int32_t> prompt,
                             int count, uint64_t seed = 1) {
  GenerateRequest request = request_of(std::move(prompt), count, seed);
  request.session = id;
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reader->end && reader->end->ok());
  return reader;
}

// Makes a session that reads `given` values and samples `sampled` more. Returns all of them.
std::vector<int32_t> make_session(Harness& harness, const std::string& id, int given, int sampled) {
  EXPECT_TRUE(harness.create(id).ok());
  std::vector<int32_t> known = counted(given);
  const auto reader = call(harness, id, known, sampled);
  known.insert(known.end(), reader->values[0].begin(), reader->values[0].end());
  return known;
}

// The values that a fork of the session samples next.
std::vector<int32_t> try_on(Harness& harness, const std::string& id) {
  EXPECT_TRUE(harness.fork(id, {"try"}).ok());
  const auto values = call(harness, "try", {}, 5, 9)->values[0];
  EXPECT_TRUE(harness.remove("try").ok());
  return values;
}

int64_t oldest(Harness& harness, const std::string& id) {
  for (int64_t position = harness.get(id)->position; position > 0; --position) {
    const auto back = harness.rewind(id, position - 1);
    if (!back.ok()) return position;
  }
  return 0;
}

std::vector<int32_t> expected_after(std::vector<int32_t> known, int64_t position) {
  known.resize(position);
  return FakeModel::expected(fake_spec(), known, 9, 0, 5);
}

TEST(Rewind, ContinuesLikeASessionThatStoppedThere) {
  struct Case {
    int64_t values, every;
    int steps, given, sampled;
  };
  for (const Case& one : {Case{20, 4, 1, 30, 20},
                          {20, 4, 1, 1, 60},
                          {20, 4, 1, 60, 0},
                          {7, 5, 1, 13, 11},
                          {6, 1, 1, 9, 9},
                          {1, 10, 1, 25, 3},
                          {20, 4, 3, 11, 50},
                          {9, 2, 4, 3, 40},
                          {50, 8, 1, 10, 10}}) {
    Harness harness = harness_of(one.values, one.every, one.steps);
    const std::vector<int32_t> known = make_session(harness, "a", one.given, one.sampled);
    const int64_t end = std::ssize(known);
    for (int64_t position = end; position >= std::max<int64_t>(1, end - one.values); --position) {
      const auto back = harness.rewind("a", position);
      ASSERT_TRUE(back.ok()) << position << ": " << back.status().to_string();
      EXPECT_EQ(back->position, position);
      EXPECT_EQ(back->state, SessionPhase::kIdle);
      EXPECT_EQ(try_on(harness, "a"), expected_after(known, position));
    }
  }
}

// If prompts are read in chunks, the sums depend on which values shared a chunk.
TEST(Rewind, ContinuesLikeASessionThatStoppedThereIfPromptsAreReadInChunks) {
  constexpr int kChunk = 8;
  constexpr int kGiven = 37;
  const EngineOptions options = options_of(30, kChunk);
  ModelLimits limits = limits_of(options, 4, 2);
  limits.chunk = kChunk;
  limits.values = 3 * kChunk;
  Harness harness(fake_spec(), limits, options);
  const std::vector<int32_t> known = make_session(harness, "a", kGiven, 14);
  for (int64_t position = std::ssize(known); position >= std::ssize(known) - 30; --position) {
    Harness other(fake_spec(), limits, options);
    const int given = std::min<int>(kGiven, static_cast<int>(position));
    make_session(other, "a", given, static_cast<int>(position) - given);
    ASSERT_TRUE(harness.rewind("a", position).ok());
    EXPECT_EQ(try_on(harness, "a"), try_on(other, "a")) << position;
  }
}

TEST(Rewind, GoesToTheStartAndContinuesFromThere) {
  Harness harness = harness_of(20, 4);
  make_session(harness, "a", 9, 5);
  const auto back = harness.rewind("a", 0);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->position, 0);
  EXPECT_EQ(call(harness, "a", {5, 6}, 4)->values[0],
            FakeModel::expected(fake_spec(), {5, 6}, 1, 0, 4));
  EXPECT_EQ(harness.get("a")->position, 6);
}

// The state of an imported session need not come from values.
TEST(Rewind, GoesToTheStartOfASequenceThatBeganWithAState) {
  Harness harness = harness_of(20, 8);
  make_session(harness, "a", 3, 0);
  StateImage image = *harness.export_state("a");
  for (const bool begun : {false, true}) {
    image.position = begun ? 1 : 0;
    image.pending = begun ? 7 : kNoValue;
    for (int64_t position = image.position; position <= 12; ++position) {
      ASSERT_TRUE(harness.import_state("long", image).ok());
      ASSERT_TRUE(harness.import_state("short", image).ok());
      call(harness, "long", counted(12 - static_cast<int>(image.position)), 0);
      if (position > image.position) {
        call(harness, "short", counted(static_cast<int>(position - image.position)), 0);
      }
      const auto back = harness.rewind("long", position);
      ASSERT_TRUE(back.ok()) << position << ": " << back.status().to_string();
      EXPECT_EQ(call(harness, "long", {5}, 5)->values[0], call(harness, "short", {5}, 5)->values[0])
          << begun << ' ' << position;
      EXPECT_TRUE(harness.remove("long").ok());
      EXPECT_TRUE(harness.remove("short").ok());
    }
  }
}

// Rewinds and continues many times.
TEST(Rewind, ValuesAfterARewindCanBeUndoneToo) {
  Harness harness = harness_of(12, 5, 2);
  std::vector<int32_t> known = make_session(harness, "a", 20, 0);
  for (int round = 0; round < 60; ++round) {
    known.resize(known.size() - 1 - static_cast<size_t>(round * 7 % 5));
    const auto back = harness.rewind("a", std::ssize(known));
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    const std::vector<int32_t> given(static_cast<size_t>(round * 3 % 4), round);
    const auto reader = call(harness, "a", given, round * 5 % 7);
    known.insert(known.end(), given.begin(), given.end());
    const auto sampled = FakeModel::expected(fake_spec(), known, 1, 0, round * 5 % 7);
    EXPECT_EQ(reader->values[0], sampled);
    known.insert(known.end(), sampled.begin(), sampled.end());
    while (known.size() < 15) {
      const auto more = call(harness, "a", {}, 3)->values[0];
      known.insert(known.end(), more.begin(), more.end());
    }
    EXPECT_EQ(try_on(harness, "a"), expected_after(known, std::ssize(known)));
  }
}

TEST(Rewind, FeedsAtMostTheValuesBetweenTwoSnapshotsAgain) {
  const EngineOptions options = options_of(20, 6);
  Harness harness(fake_spec(), limits_of(options, 4), options);
  make_session(harness, "a", 30, 30);
  for (int64_t position = 59; position >= 40; --position) {
    const int64_t before = harness.engine->stats().values_consumed;
    ASSERT_TRUE(harness.rewind("a", position).ok());
    EXPECT_LE(harness.engine->stats().values_consumed - before, 6);
  }
}

TEST(Rewind, RefusalsNameTheOldestPosition) {
  Harness harness = harness_of(20, 4);
  make_session(harness, "a", 30, 20);
  const auto refused = [&](const std::string& id, int64_t position) {
    return harness.rewind(id, position).status();
  };
  EXPECT_EQ(refused("a", 29),
            Status(Code::kOutOfRange,
                   "session 'a' cannot go back to position 29: the oldest that it can go back to "
                   "is 30")
                .at_field(fields::kPosition));
  EXPECT_EQ(
      refused("a", 51),
      Status(Code::kOutOfRange,
             "session 'a' is at position 50 and can only go back to an earlier one, not to 51")
          .at_field(fields::kPosition));
  EXPECT_EQ(refused("a", -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused("b", 1).code(), Code::kNotFound);
  EXPECT_EQ(refused("b/c", 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(harness.get("a")->position, 50);
  EXPECT_TRUE(refused("a", 50).ok());
  harness.engine->drain();
  EXPECT_EQ(refused("a", 40).code(), Code::kUnavailable);
}

TEST(Rewind, IsRefusedIfTheServerKeepsNoSnapshots) {
  Harness harness;
  make_session(harness, "a", 5, 0);
  const Status refused = harness.rewind("a", 4).status();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("--rewind"));
  EXPECT_EQ(harness.engine->stats().sessions, 8);
}

TEST(Rewind, ASessionThatRunsIsBusy) {
  Harness harness = harness_of(20, 4);
  make_session(harness, "a", 5, 0);
  GenerateRequest request = request_of({}, 50);
  request.session = "a";
  harness.generate(request);
  harness.turn();
  EXPECT_EQ(harness.rewind("a", 2).status().code(), Code::kAborted);
}

TEST(Rewind, ASessionMadeFromAStateCannotRewindBeforeThatState) {
  Harness harness = harness_of(20, 4);
  std::vector<int32_t> known = make_session(harness, "a", 10, 0);
  ASSERT_TRUE(harness.fork("a", {"fork"}).ok());
  ASSERT_TRUE(harness.import_state("import", *harness.export_state("a")).ok());
  GenerateRequest request = request_of({}, 0);
  const auto image = std::make_shared<StateImage>(*harness.export_state("a"));
  harness.engine->add_state("stored", image, [](const auto& r) { EXPECT_TRUE(r.ok()); });
  harness.run();
  for (const std::string id : {"fork", "import"}) {
    EXPECT_THAT(harness.rewind(id, 9).status().message(), HasSubstr("back to is 10"));
    EXPECT_EQ(call(harness, id, {}, 7)->values[0].size(), 7U);
    EXPECT_THAT(harness.rewind(id, 9).status().message(), HasSubstr("back to is 10"));
    ASSERT_TRUE(harness.rewind(id, 10).ok());
    EXPECT_EQ(call(harness, id, {}, 5, 9)->values[0], expected_after(known, 10));
    ASSERT_TRUE(harness.remove(id).ok());
  }
  request.state = "stored";
  request.keep = true;
  request.max_values = 7;
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_EQ(oldest(harness, reader->started->session), 10);
  EXPECT_EQ(call(harness, reader->started->session, {}, 5, 9)->values[0],
            expected_after(known, 10));
}

TEST(Rewind, ACallWithoutKeepLeavesTheSnapshotsUnchanged) {
  Harness harness = harness_of(20, 4);
  const std::vector<int32_t> known = make_session(harness, "a", 10, 5);
  GenerateRequest request = request_of({8}, 9);
  request.session = "a";
  request.keep = false;
  harness.generate(request);
  harness.run();
  ASSERT_TRUE(harness.rewind("a", 7).ok());
  EXPECT_EQ(try_on(harness, "a"), expected_after(known, 7));
}

TEST(Rewind, CanGoBackIntoValuesThatScoreHasKept) {
  Harness harness = harness_of(20, 4);
  std::vector<int32_t> known = make_session(harness, "a", 5, 0);
  const auto scoring = harness.engine->start_score({}, {"a", {}}, false, true);
  ASSERT_TRUE(scoring.ok());
  int answers = 0;
  for (const std::vector<int32_t>& chunk : {counted(9), counted(6)}) {
    ASSERT_TRUE(
        harness.engine->score(*scoring, chunk, [&](const auto& r) { answers += r.ok(); }).ok());
    harness.run();
    known.insert(known.end(), chunk.begin(), chunk.end());
  }
  harness.engine->end_score(*scoring);
  harness.run();
  EXPECT_EQ(answers, 2);
  for (const int64_t position : {18, 14, 13, 6, 3}) {
    ASSERT_TRUE(harness.rewind("a", position).ok());
    EXPECT_EQ(try_on(harness, "a"), expected_after(known, position));
  }
}

TEST(Rewind, TheNextSessionOfASlotHasNoSnapshotsOfTheLastOne) {
  Harness harness = harness_of(20, 4);
  for (const std::string id : {"a", "b"}) {
    const std::vector<int32_t> known =
        make_session(harness, id, 3 + static_cast<int>(id.size()), 15);
    ASSERT_TRUE(harness.rewind(id, 2).ok());
    EXPECT_EQ(try_on(harness, id), expected_after(known, 2));
    ASSERT_TRUE(harness.remove(id).ok());
  }
}

TEST(Rewind, ARetryOfAnUndoneCallRunsAgain) {
  Harness harness = harness_of(20, 4);
  make_session(harness, "a", 5, 0);
  GenerateRequest request = request_of({7}, 6);
  request.session = "a";
  request.request_id = "r";
  harness.generate(request);
  harness.run();
  ASSERT_TRUE(harness.rewind("a", 5).ok());
  const auto again = harness.generate(request);
  harness.run();
  EXPECT_EQ(again->started->position, 5);
  EXPECT_EQ(harness.get("a")->position, 12);
}

// The session may be deleted in both parts of a rewind: the copy, and the feeding of values.
TEST(Rewind, EndsWithItsSession) {
  const EngineOptions options = options_of(20, 8);
  ModelLimits limits = limits_of(options, 4);
  limits.values = 1;  // values are fed one by one
  Harness harness(fake_spec(), limits, options);
  make_session(harness, "a", 15, 0);
  std::optional<Status> ended;
  const auto note = [&](const auto& r) { ended = r.status(); };
  harness.engine->rewind_session({}, "a", 14, note);
  for (int i = 0; i < 3; ++i) harness.turn();
  EXPECT_EQ(harness.get("a")->state, SessionPhase::kPrompting);
  EXPECT_EQ(harness.engine->active_calls(), 1);
  EXPECT_TRUE(harness.remove("a").ok());
  EXPECT_EQ(ended, Status(Code::kAborted, "session 'a' was deleted"));
  make_session(harness, "b", 15, 0);
  ended.reset();
  harness.engine->rewind_session({}, "b", 14, note);
  for (int i = 0; i < 3; ++i) harness.turn();
  harness.engine->end_all({Code::kUnavailable, "over"});
  harness.run();
  EXPECT_EQ(ended, Status(Code::kUnavailable, "over"));
  EXPECT_EQ(harness.get("b")->state, SessionPhase::kIdle);
  EXPECT_EQ(harness.engine->active_calls(), 0);
}

// Saving or restoring a state of 5 MiB takes 5 turns. Other calls make a step in each of them.
TEST(Rewind, LargeSnapshotsAreTakenBetweenTheStepsOfOthers) {
  constexpr int64_t kLarge = 5 << 20;
  const EngineOptions options = options_of(4, 4);
  const ModelLimits limits = limits_of(options, 3);
  auto owned = std::make_unique<FakeModel>(fake_spec(), limits, kLarge);
  FakeModel& model = *owned;
  Harness harness(std::move(owned), options);
  const std::vector<int32_t> known = make_session(harness, "a", 4, 0);
  GenerateRequest request = request_of({}, 6);
  request.session = "a";
  const auto reader = harness.generate(request);
  harness.generate(request_of({5}, 100));
  harness.turn();
  std::vector<size_t> rows;  // the number of rows in each launch
  while (!reader->end) {
    const size_t launched = model.launches.size();
    harness.turn();
    ASSERT_EQ(model.launches.size(), launched + 1) << "others do not wait";
    rows.push_back(model.launches.back().rows.size());
  }
  EXPECT_EQ(std::ranges::count(rows, 2U), 5) << "one of its six values came before";
  EXPECT_EQ(std::ranges::count(rows, 1U), 8)
      << "two snapshots of five turns, which end with a step";
  std::optional<Status> ended;
  harness.engine->rewind_session({}, "a", 7, [&](const auto& r) { ended = r.status(); });
  int turns = 0;
  for (; !ended; ++turns) {
    const size_t launched = model.launches.size();
    harness.turn();
    ASSERT_EQ(model.launches.size(), launched + 1);
  }
  EXPECT_EQ(turns, 5);
  EXPECT_TRUE(ended->ok());
}

// Snapshots that are due at once take turns, and every session makes progress.
TEST(Rewind, SnapshotsThatAreDueTogetherTakeTurns) {
  const EngineOptions options = options_of(2, 1);
  const ModelLimits limits = limits_of(options, 3);
  Harness harness(std::make_unique<FakeModel>(fake_spec(), limits, 1 << 20), options);
  std::vector<std::shared_ptr<Reader>> readers;
  for (const std::string id : {"a", "b", "c"}) {
    ASSERT_TRUE(harness.create(id).ok());
    GenerateRequest request = request_of({1}, 40);
    request.session = id;
    request.delivery = {.max_values = 1, .max_delay = Duration(0)};
    readers.push_back(harness.generate(request));
  }
  for (int i = 0; i < 45; ++i) harness.turn();
  for (const auto& reader : readers) {
    EXPECT_GE(reader->values[0].size(), 12U);
    EXPECT_LE(reader->values[0].size(), 18U);
  }
}

// On the CPU, with other calls: the bits equal those of a session that stopped there.
TEST(Rewind, HasTheBitsOfASessionThatStoppedThere) {
  for (const Spec& spec : small_family_specs()) {
    const Bundle bundle = random_bundle(spec, 3);
    const EngineOptions options = options_of(12, 4);
    const auto run = [&](bool rewinds, int64_t position, int rows, int values) {
      ModelLimits limits = limits_of(options, 4);
      limits.rows = rows;
      limits.values = values;
      CpuModel model = make_cpu_model(bundle, {Isa::kPortable, 1}, limits);
      Harness harness(std::move(model.model), options);
      EXPECT_TRUE(harness.create("a").ok());
      std::vector<int32_t> known = {1, 5, 2, 8, 3, 9, 10, 4, 4};
      const std::vector<int32_t> sampled = {7, 1, 2, 6, 5, 3};  // fed instead of sampled
      harness.generate(request_of({4, 4}, 60));
      if (rewinds) {
        call(harness, "a", known, 0);
        call(harness, "a", sampled, 4);
        const auto back = harness.rewind("a", position);
        EXPECT_TRUE(back.ok()) << back.status().to_string();
      } else {
        known.insert(known.end(), sampled.begin(), sampled.end());
        known.resize(position);
        call(harness, "a", known, 0);
      }
      const auto reader = call(harness, "a", {6, 1}, 12, 77);
      return std::pair(reader->values[0], reader->log_probs[0]);
    };
    for (const int64_t position : {7, 9, 10, 13, 15}) {
      const auto expected = run(false, position, 4, 16);
      for (const auto& [rows, values] : {std::pair(1, 1), {2, 3}, {4, 16}}) {
        EXPECT_EQ(run(true, position, rows, values), expected) << position;
      }
    }
  }
}

}  // namespace
}  // namespace runnel
