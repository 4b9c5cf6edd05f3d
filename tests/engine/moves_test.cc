// Moves of states: fork, export and import.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fields.h"
#include "engine/refusals.h"
#include "tests/engine/harness.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kLarge = 5 << 20;

// Creates a session and feeds it these values.
void feed_session(Harness& harness, const std::string& id, const std::vector<int32_t>& values) {
  ASSERT_TRUE(harness.create(id).ok());
  GenerateRequest request = request_of(values, 0);
  request.session = id;
  harness.generate(request);
  harness.run();
}

std::vector<int32_t> go_on(Harness& harness, const std::string& id, int count) {
  GenerateRequest request = request_of({}, count, 9);
  request.session = id;
  const auto reader = harness.generate(request);
  harness.run();
  EXPECT_TRUE(reader->end && reader->end->ok());
  return reader->values[0];
}

Harness with_large_states(FakeModel*& model) {
  auto owned = std::make_unique<FakeModel>(fake_spec(), Harness::default_limits(), kLarge);
  model = owned.get();
  return Harness(std::move(owned));
}

TEST(Moves, ChildrenContinueLikeTheirParent) {
  Harness harness;
  feed_session(harness, "a", {1, 2, 3});
  const auto made = harness.fork("a", {"b", ""});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  ASSERT_EQ(made->size(), 2U);
  EXPECT_EQ((*made)[0].key.id, "b");
  EXPECT_EQ((*made)[0].position, 3);
  EXPECT_EQ((*made)[0].state, SessionPhase::kIdle);
  EXPECT_EQ((*made)[1].key.id.size(), 34U);  // s- and 128 bits
  const auto expected = FakeModel::expected(fake_spec(), {1, 2, 3}, 9, 0, 20);
  EXPECT_EQ(go_on(harness, "b", 20), expected);
  EXPECT_EQ(go_on(harness, "a", 20), expected);
  EXPECT_EQ(go_on(harness, (*made)[1].key.id, 20), expected);
  EXPECT_EQ(harness.get("a")->position, 23);
}

TEST(Moves, AnEmptySessionForks) {
  Harness harness(fake_spec(0, true));
  ASSERT_TRUE(harness.create("a").ok());
  ASSERT_TRUE(harness.fork("a", {"b"}).ok());
  EXPECT_EQ(go_on(harness, "b", 4), go_on(harness, "a", 4));
}

TEST(Moves, AForkThatIsRefusedChangesNothing) {
  Harness harness;
  feed_session(harness, "a", {1, 2});
  ASSERT_TRUE(harness.create("b").ok());
  const auto refused = [&](const std::string& parent, const std::vector<std::string>& children) {
    return harness.fork(parent, children).status();
  };
  EXPECT_EQ(refused("x", {"c"}), no_session("x", fields::kId));
  EXPECT_EQ(refused("a", {"c", "b"}), session_exists("b", fields::kChildren));
  EXPECT_THAT(refused("a", {"c", "c"}).message(), HasSubstr("'c' is named twice"));
  EXPECT_THAT(refused("a", {}).message(), HasSubstr("it must be between 1 and 64"));
  EXPECT_EQ(refused("a", std::vector<std::string>(65)).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused("a", {"c/d"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused("a", std::vector<std::string>(7)).code(), Code::kResourceExhausted);
  EXPECT_EQ(harness.engine->stats().sessions_free, 6);
  EXPECT_EQ(harness.get("a")->state, SessionPhase::kIdle);
  EXPECT_EQ(harness.get("c").status().code(), Code::kNotFound);
}

TEST(Moves, AForkIntoTooManyChildrenNamesTheFieldThatAsksForThem) {
  Harness harness;
  ASSERT_TRUE(harness.create("a").ok());
  const auto refused = [&](const std::vector<std::string>& children) {
    return harness.fork("a", children).status();
  };
  const Status counted = refused(std::vector<std::string>(9));
  EXPECT_EQ(counted.code(), Code::kInvalidArgument);
  EXPECT_EQ(counted.field(), fields::kCount);
  EXPECT_THAT(counted.message(), StartsWith("count asks for 9 states, and the server keeps 8 in"));
  std::vector<std::string> named(65);
  named[0] = "b";
  EXPECT_EQ(refused(named).field(), fields::kChildren) << "above the limit of samples";
  named.resize(9);
  EXPECT_EQ(refused(named).field(), fields::kChildren);
  EXPECT_THAT(refused(named).message(), StartsWith("children asks for 9 states"));
  EXPECT_EQ(refused({"b/c"}).field(), fields::kChildren);
  EXPECT_EQ(harness.fork("b/c", {"b"}).status().field(), fields::kId);
}

TEST(Moves, AnExportedStateContinuesElsewhere) {
  Harness here;
  feed_session(here, "a", {1, 2, 3});
  const auto image = here.export_state("a");
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->position, 3);
  EXPECT_EQ(image->pending, 3);
  Harness there;
  ASSERT_TRUE(there.create("other").ok());
  const auto made = there.import_state("a", *image);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)[0].position, 3);
  EXPECT_EQ(go_on(there, "a", 20), go_on(here, "a", 20));
  EXPECT_EQ(there.import_state("a", *image).status(), session_exists("a", fields::kId));
}

// A state of 5 MiB takes 5 turns to move. A generation makes a step in each of them.
TEST(Moves, ALargeStateMovesInPiecesBetweenSteps) {
  FakeModel* model = nullptr;
  Harness harness = with_large_states(model);
  feed_session(harness, "a", {1, 2, 3});
  const auto other = harness.generate(request_of({5}, 100));
  harness.turn();
  const auto image = std::make_shared<StateImage>();
  std::optional<Status> exported;
  harness.engine->export_session({"", "a"}, image, [&](const auto& r) { exported = r.status(); });
  for (size_t turn = 1; turn <= 5; ++turn) {
    const size_t launched = model->launches.size();
    EXPECT_FALSE(exported.has_value());
    harness.turn();
    EXPECT_EQ(model->launches.size(), launched + 1);
  }
  ASSERT_TRUE(exported.has_value());
  EXPECT_TRUE(exported->ok());
  const auto expected = go_on(harness, "a", 5);
  ASSERT_TRUE(harness.import_state("b", *image).ok());
  EXPECT_EQ(go_on(harness, "b", 5), expected);
}

// Starts a copy of a session at rest. The result is empty until the copy ends, after 5 turns.
std::shared_ptr<std::optional<Status>> begin_copy(Harness& harness,
                                                  const std::shared_ptr<StateImage>& image) {
  image->bytes.resize(static_cast<size_t>(harness.engine->state_bytes()));
  const auto copied = std::make_shared<std::optional<Status>>();
  harness.engine->copy_at_rest({"", "a"}, image, [copied](const auto& r) { *copied = r.status(); });
  harness.turn();
  return copied;
}

TEST(Moves, ACopyOfASessionAtRestGivesWayToCalls) {
  FakeModel* model = nullptr;
  Harness harness = with_large_states(model);
  feed_session(harness, "a", {1, 2, 3});
  const auto image = std::make_shared<StateImage>();
  auto copied = begin_copy(harness, image);
  EXPECT_FALSE(copied->has_value());
  EXPECT_EQ(harness.get("a")->state, SessionPhase::kIdle);
  GenerateRequest reads = request_of({}, 2);
  reads.session = "a";
  reads.keep = false;
  harness.generate(reads);
  harness.turn();
  EXPECT_FALSE(copied->has_value()) << "a call that only reads";
  EXPECT_EQ(go_on(harness, "a", 5), FakeModel::expected(fake_spec(), {1, 2, 3}, 9, 0, 5));
  ASSERT_TRUE(copied->has_value());
  EXPECT_EQ((*copied)->code(), Code::kCancelled);
  copied = begin_copy(harness, image);
  harness.run();
  ASSERT_TRUE(copied->has_value() && (*copied)->ok());
  EXPECT_EQ(image->position, 8);
  ASSERT_TRUE(harness.import_state("b", *image).ok());
  EXPECT_EQ(go_on(harness, "b", 5), go_on(harness, "a", 5));
}

TEST(Moves, ACopyOfASessionThatEndsIsCancelled) {
  FakeModel* model = nullptr;
  Harness harness = with_large_states(model);
  const auto image = std::make_shared<StateImage>();
  for (const bool again : {false, true}) {
    ASSERT_TRUE(harness.create("a").ok());
    const auto copied = begin_copy(harness, image);
    harness.engine->delete_session({"", "a"}, [](const Status&) {});
    if (again) harness.engine->create_session({}, "a", [](const auto&) {});  // in the same turn
    harness.turn();
    ASSERT_TRUE(copied->has_value());
    EXPECT_EQ((*copied)->code(), Code::kCancelled);
  }
  ASSERT_TRUE(harness.remove("a").ok());
  EXPECT_EQ(begin_copy(harness, image)->value().code(), Code::kNotFound);
}

TEST(Moves, AMovingSessionIsBusy) {
  FakeModel* model = nullptr;
  Harness harness = with_large_states(model);
  feed_session(harness, "a", {1, 2, 3});
  std::optional<Result<std::vector<SessionInfo>>> forked;
  harness.engine->fork_session({}, "a", {"b", "c"}, [&](auto r) { forked = std::move(r); });
  harness.turn();
  for (const char* id : {"a", "b"}) {
    EXPECT_EQ(harness.get(id)->state, SessionPhase::kMoving);
    EXPECT_EQ(harness.remove(id).code(), Code::kAborted);
    GenerateRequest request = request_of({}, 1);
    request.session = id;
    const auto reader = harness.generate(request);
    harness.turn();
    ASSERT_TRUE(reader->end);
    EXPECT_EQ(reader->end->code(), Code::kAborted);
  }
  harness.run();
  ASSERT_TRUE(forked.has_value());
  EXPECT_TRUE(forked->ok());
  EXPECT_EQ(go_on(harness, "c", 5), go_on(harness, "a", 5));
  EXPECT_TRUE(harness.remove("b").ok());
}

TEST(Moves, ARetryWaitsUntilItsSessionHasMoved) {
  FakeModel* model = nullptr;
  Harness harness = with_large_states(model);
  feed_session(harness, "a", {1, 2, 3});
  GenerateRequest request = request_of({}, 50);
  request.session = "a";
  request.request_id = "r";
  const auto first = harness.generate(request);
  harness.turn();
  first->stream->cancel();
  harness.run();
  harness.engine->export_session({"", "a"}, std::make_shared<StateImage>(), [](const auto&) {});
  harness.turn();
  const auto retry = harness.generate(request);
  harness.turn();
  ASSERT_TRUE(retry->end);
  EXPECT_EQ(*retry->end, Status(Code::kAborted, "session 'a' is busy; try again"));
  harness.run();
  const auto again = harness.generate(request);
  harness.run();
  EXPECT_EQ(again->values[0], FakeModel::expected(fake_spec(), {1, 2, 3}, 1, 0, 50));
}

TEST(Moves, StoppingTheEngineEndsMovesAndFreesTheirSlots) {
  FakeModel* model = nullptr;
  Harness harness = with_large_states(model);
  feed_session(harness, "a", {1, 2, 3});
  const auto image = harness.export_state("a");
  std::vector<Status> ends;
  const auto note = [&](const auto& r) { ends.push_back(r.status()); };
  harness.engine->fork_session({}, "a", {"b"}, note);
  harness.engine->import_session({}, "c", std::make_shared<StateImage>(*image), note);
  harness.turn();
  const Status over(Code::kUnavailable, "over");
  harness.engine->end_all(over);
  harness.turn();
  EXPECT_THAT(ends, ElementsAre(over, over));
  EXPECT_EQ(harness.get("a")->state, SessionPhase::kIdle);
  EXPECT_EQ(harness.get("b").status().code(), Code::kNotFound);
  EXPECT_EQ(harness.engine->stats().sessions_free, 7);
}

TEST(Moves, ADrainingEngineStillExportsSessions) {
  Harness harness;
  feed_session(harness, "a", {1, 2, 3});
  const auto image = harness.export_state("a");
  harness.engine->drain();
  EXPECT_TRUE(harness.export_state("a").ok());
  EXPECT_EQ(harness.fork("a", {"b"}).status().code(), Code::kUnavailable);
  EXPECT_EQ(harness.import_state("b", *image).status().code(), Code::kUnavailable);
}

TEST(Moves, CallsStartFromAStoredStateAndLeaveItAsItIs) {
  Harness harness;
  feed_session(harness, "a", {1, 2, 3});
  const auto image = std::make_shared<StateImage>(*harness.export_state("a"));
  ASSERT_TRUE(harness.remove("a").ok());
  std::vector<Code> added;
  for (int i = 0; i < 2; ++i) {
    harness.engine->add_state("dark", image,
                              [&](const auto& r) { added.push_back(r.status().code()); });
    harness.run();
  }
  EXPECT_THAT(added, ElementsAre(Code::kOk, Code::kAlreadyExists));
  EXPECT_EQ(harness.get("dark").status().code(), Code::kNotFound) << "it is no session";
  const auto expected = FakeModel::expected(fake_spec(), {1, 2, 3}, 1, 0, 10);
  for (int i = 0; i < 2; ++i) {
    GenerateRequest request = request_of({}, 10);
    request.state = "dark";
    request.keep = true;
    request.request_id = "r";
    const auto reader = harness.generate(request);
    harness.run();
    ASSERT_TRUE(reader->end && reader->end->ok());
    EXPECT_EQ(reader->values[0], expected);
  }
  GenerateRequest other = request_of({5}, 10);
  other.state = "dark";
  other.keep = true;
  other.request_id = "r";
  const auto reader = harness.generate(other);
  harness.run();
  EXPECT_EQ(reader->end->code(), Code::kInvalidArgument);
  other.state = "none";
  other.request_id = "";
  const auto nowhere = harness.generate(other);
  harness.run();
  EXPECT_EQ(nowhere->end->code(), Code::kNotFound);
  harness.clock.advance(std::chrono::hours(2));
  harness.run();
  EXPECT_EQ(harness.engine->stats().sessions_free, 7) << "the stored state does not expire";
}

// On the CPU, with other calls, moved from one server to the next: the bits equal those of a
// sequence that was never moved.
TEST(Moves, MovedSessionsHaveTheBitsOfAnUndisturbedRun) {
  for (const Spec& spec : small_family_specs()) {
    const Bundle bundle = random_bundle(spec, 3);
    const ModelLimits limits = {.slots = 4, .rows = 4, .values = 16, .steps = 1};
    const auto run = [&](bool moves) {
      CpuModel first = make_cpu_model(bundle, {Isa::kPortable, 1}, limits);
      CpuModel second = make_cpu_model(bundle, {Isa::kPortable, 2}, limits);
      Harness here(std::move(first.model));
      Harness there(std::move(second.model));
      feed_session(here, "a", {1, 5, 2, 8, 3, 9, 10});
      here.generate(request_of({4, 4}, 30));
      Harness& at = moves ? there : here;
      if (moves) {
        EXPECT_TRUE(here.fork("a", {"b"}).ok());
        EXPECT_TRUE(there.create("x").ok());
        EXPECT_TRUE(there.import_state("a", *here.export_state("b")).ok());
      }
      at.generate(request_of({7}, 20));
      GenerateRequest request = request_of({6, 1}, 12, 77);
      request.session = "a";
      const auto reader = at.generate(request);
      at.run();
      return std::pair(reader->values[0], reader->log_probs[0]);
    };
    EXPECT_EQ(run(true), run(false));
  }
}

}  // namespace
}  // namespace runnel
