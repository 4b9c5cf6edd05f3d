#include "engine/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>

#include "base/fields.h"
#include "engine/account_usage.h"
#include "engine/refusals.h"
#include "tests/engine/fake_model.h"

namespace runnel {
namespace {

constexpr TimePoint kNow{std::chrono::seconds(1000)};

class SessionsTest : public testing::Test {
 protected:
  // Feeds a value to the session's state, as the prompt of a call does.
  void feed(Session& session, int32_t value) {
    const std::vector<int32_t> values = {value};
    const Row row = {session.slot, values, Want::kNothing};
    std::vector<Emitted> emitted;
    EXPECT_TRUE(*model_.collect(model_.submit({&row, 1}, 1), emitted));
    session.pending = value;
    ++session.position;
  }
  // The state of the fake model: a hash of the consumed values, at the start of its slot.
  uint64_t state_of(const Session& session) {
    std::vector<std::byte> bytes(model_.layout().state_bytes);
    model_.read(session.slot, 0, bytes);
    uint64_t hash = 0;
    std::memcpy(&hash, bytes.data(), sizeof(hash));
    return hash;
  }

  bool has(const std::string& id) { return sessions_.find({"me", id}) != nullptr; }
  void create(const std::string& id, const Caller& caller = {}) {
    ASSERT_TRUE(sessions_.create({"me", id}, caller, kNow).ok());
  }

  // Leaves the session as a call that saved it does.
  void save(const std::string& id) {
    Session& session = *sessions_.find({"me", id});
    session.saved_at = session.position;
    sessions_.lend(session);
  }

  FakeModel model_{fake_spec(), {.slots = 3, .rows = 3, .values = 8, .steps = 1}};
  EngineOptions options_{.idle_timeout = std::chrono::seconds(60)};
  Sessions sessions_{model_, options_};
};

TEST_F(SessionsTest, ResolveFindsAnIdleSessionOrNamesTheFault) {
  ASSERT_TRUE(sessions_.create({"me", "a"}, {}, kNow).ok());
  const Result<Session*> found = sessions_.resolve({"me", "a"}, fields::kId);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(sessions_.resolve({"you", "a"}, fields::kId).status(), no_session("a", fields::kId));
  (*found)->apply(SessionEvent::kFeed);
  const Status busy = sessions_.resolve({"me", "a"}, fields::kId).status();
  EXPECT_EQ(busy.code(), Code::kAborted);
  EXPECT_THAT(busy.message(), testing::HasSubstr("session 'a' is busy"));
}

TEST_F(SessionsTest, AnAnonymousSessionEndsWithItsCallAndANamedOneRests) {
  Session& anonymous = sessions_.open_anonymous({});
  Session& named = sessions_.open({"me", "a"}, {});
  named.apply(SessionEvent::kFeed);
  EXPECT_EQ(sessions_.free_slots(), 1);
  sessions_.give_back(anonymous, kNow);
  EXPECT_EQ(anonymous.state, SessionPhase::kEnded);
  sessions_.give_back(named, kNow);
  EXPECT_TRUE(named.resting());
  EXPECT_EQ(sessions_.free_slots(), 2);
  EXPECT_EQ(sessions_.find({"me", "a"}), &named);
}

TEST_F(SessionsTest, ACopyHasTheSameStateAndAResetSlotHasNone) {
  Session& from = sessions_.open({"me", "a"}, {});
  sessions_.reset(from);
  const uint64_t empty = state_of(from);
  feed(from, 5);
  feed(from, 6);
  Session& to = sessions_.open_anonymous({});
  sessions_.copy(from, to);
  EXPECT_EQ(state_of(to), state_of(from));
  EXPECT_EQ(to.position, 2);
  EXPECT_EQ(to.pending, 6);
  sessions_.give_back(to, kNow);
  Session& next = sessions_.open_anonymous({});
  EXPECT_EQ(next.position, 0);
  sessions_.reset(next);
  EXPECT_EQ(state_of(next), empty);
}

TEST_F(SessionsTest, AFullPoolSaysHowManySlotsAreFreeAndWhenToRetry) {
  EXPECT_TRUE(sessions_.claim(0).ok());
  EXPECT_TRUE(sessions_.claim(2).ok());
  const Status refused = sessions_.claim(2);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), testing::HasSubstr("1 of 3 sessions are free"));
  EXPECT_TRUE(refused.retry_after().has_value());
  EXPECT_EQ(sessions_.claim(4).code(), Code::kInvalidArgument) << "it never fits";
  sessions_.give_up(2);
  EXPECT_TRUE(sessions_.take_room(3, {}).ok());
  const Status never = sessions_.take_room(4, {}, fields::kCount);
  EXPECT_EQ(never.code(), Code::kInvalidArgument);
  EXPECT_EQ(never.field(), fields::kCount);
  EXPECT_EQ(never.message(),
            "count asks for 4 states, and the server keeps 3 in all; ask for fewer, or start it "
            "with --sessions 4");
}

TEST_F(SessionsTest, SlotsOfStoredStatesNeverComeFree) {
  const Result<Session*> stored = sessions_.open_state("s");
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(sessions_.claim(3).code(), Code::kInvalidArgument);
  EXPECT_EQ(sessions_.take_room(3, {}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(sessions_.claim(2).ok());
  sessions_.give_up(2);
  sessions_.forget(**stored);
  EXPECT_TRUE(sessions_.take_room(3, {}).ok());
}

TEST_F(SessionsTest, ASessionThatNeverFitsNamesNoField) {
  for (const char* const name : {"s", "t", "u"}) ASSERT_TRUE(sessions_.open_state(name).ok());
  const Status refused = sessions_.create({"me", "a"}, {}, kNow).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.field(), "");
  EXPECT_EQ(refused.message(),
            "the call needs a state, and the server keeps 3 in all, of which 3 are stored; "
            "start it with --sessions 4");
}

TEST_F(SessionsTest, AQuotaOfStatesIsOverAllModels) {
  FakeModel other_model(fake_spec(), {.slots = 3, .rows = 3, .values = 8, .steps = 1});
  auto other = std::make_unique<Sessions>(other_model, options_);
  Caller ada;
  ada.name = ada.account = "ada";
  ada.limits.sessions = 2;
  ada.usage = std::make_shared<AccountUsage>();
  const auto here = sessions_.create({"ada", "a"}, ada, kNow);
  ASSERT_TRUE(here.ok());
  ASSERT_TRUE(other->create({"ada", "a"}, ada, kNow).ok());
  for (Sessions* sessions : {&sessions_, other.get()}) {
    const Status refused = sessions->create({"ada", "b"}, ada, kNow).status();
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_THAT(refused.message(), testing::HasSubstr("the quota of ada is sessions 2"));
    EXPECT_TRUE(refused.retry_after().has_value());
    const Status never = sessions->take_room(3, ada, fields::kSamples);
    EXPECT_EQ(never.code(), Code::kInvalidArgument);
    EXPECT_THAT(never.message(), testing::HasSubstr("samples asks for 3 states, and the quota"));
  }
  EXPECT_EQ(ada.usage->states(), 2) << "what is refused is not counted";
  sessions_.forget(*sessions_.find({"ada", "a"}));
  EXPECT_TRUE(other->create({"ada", "b"}, ada, kNow).ok());
  other.reset();
  EXPECT_EQ(ada.usage->states(), 0) << "those of a model that has gone are not counted";
}

TEST_F(SessionsTest, StatesFromBeforeAQuotaCountAgainstIt) {
  Caller ada;
  ada.name = ada.account = "ada";
  ada.usage = std::make_shared<AccountUsage>();
  ASSERT_TRUE(sessions_.create({"ada", "a"}, ada, kNow).ok());
  EXPECT_EQ(ada.usage->states(), 1);
  ada.limits.sessions = 1;
  EXPECT_EQ(sessions_.create({"ada", "b"}, ada, kNow).status().reason(), "quota_sessions");
  sessions_.forget(*sessions_.find({"ada", "a"}));
  EXPECT_EQ(ada.usage->states(), 0);
  EXPECT_TRUE(sessions_.create({"ada", "b"}, ada, kNow).ok());
}

TEST_F(SessionsTest, AnIdThatIsChosenHas128Bits) {
  std::set<std::string> digits;
  for (int i = 0; i < 200; ++i) {
    const auto made = sessions_.create({"me", ""}, {}, kNow);
    ASSERT_TRUE(made.ok());
    const std::string& id = made->key.id;
    ASSERT_EQ(id.size(), 34U) << id;
    EXPECT_TRUE(digits.insert(id.substr(2, 16)).second) << "each half is random by itself";
    EXPECT_TRUE(digits.insert(id.substr(18)).second);
    sessions_.forget(*sessions_.find(made->key));
  }
}

TEST_F(SessionsTest, OnlyRestingSessionsExpire) {
  ASSERT_TRUE(sessions_.create({"me", "rests"}, {}, kNow).ok());
  ASSERT_TRUE(sessions_.create({"me", "works"}, {}, kNow).ok());
  sessions_.find({"me", "works"})->apply(SessionEvent::kFeed);
  sessions_.expire(kNow + std::chrono::seconds(61));
  EXPECT_EQ(sessions_.find({"me", "rests"}), nullptr);
  EXPECT_NE(sessions_.find({"me", "works"}), nullptr);
  EXPECT_EQ(sessions_.free_slots(), 2);
}

TEST_F(SessionsTest, TheSpareSessionThatIsIdleLongestIsEvictedFirst) {
  for (const char* const id : {"a", "b", "c"}) create(id);
  save("b");
  save("a");
  EXPECT_EQ(sessions_.free_slots(), 2);
  EXPECT_EQ(sessions_.unclaimed_slots(), 2);
  EXPECT_EQ(sessions_.slots_by_state()[static_cast<size_t>(SessionPhase::kNew)], 1);
  EXPECT_EQ(sessions_.page("me", "", 10, kNow).sessions.size(), 3U);
  sessions_.open_anonymous({});
  EXPECT_TRUE(has("a") && !has("b") && has("c"));
  sessions_.open_anonymous({});
  EXPECT_TRUE(!has("a") && has("c"));
  EXPECT_EQ(sessions_.take_room(1, {}).code(), Code::kResourceExhausted);
  save("c");
  sessions_.forget(*sessions_.find({"me", "c"}));
  EXPECT_EQ(sessions_.free_slots(), 1);
}

TEST_F(SessionsTest, AnIdleSessionIsSpareWhileItsSavedStateIsCurrent) {
  create("a");
  Session& session = *sessions_.find({"me", "a"});
  const auto is_spare = [&] {
    EXPECT_EQ(session.spare, sessions_.free_slots() == 3);
    return session.spare;
  };
  session.saved_at = 1;
  sessions_.lend(session);
  EXPECT_FALSE(is_spare()) << "it was saved at another position";
  save("a");
  EXPECT_TRUE(is_spare());
  sessions_.apply(session, SessionEvent::kMove);
  sessions_.lend(session);
  EXPECT_FALSE(is_spare()) << "it is busy";
  sessions_.give_back(session, kNow);
  EXPECT_TRUE(is_spare()) << "its state was only read";
  sessions_.apply(session, SessionEvent::kFeed);
  sessions_.give_back(session, kNow);
  EXPECT_FALSE(is_spare()) << "a call has had it";
  save("a");
  const std::vector<int32_t> values = {5};
  sessions_.know(session, values);
  sessions_.lend(session);
  EXPECT_FALSE(is_spare()) << "it has one value more";
  save("a");
  EXPECT_TRUE(is_spare());
  sessions_.expire(kNow + std::chrono::seconds(61));
  EXPECT_FALSE(has("a"));
  EXPECT_EQ(sessions_.free_slots(), 3);
}

TEST_F(SessionsTest, AKeptPrefixMakesRoomBeforeASpareSession) {
  options_.prefix_cache_bytes = 1024;
  Sessions sessions(model_, options_);
  for (const char* const id : {"a", "b"}) {
    ASSERT_TRUE(sessions.create({"me", id}, {}, kNow).ok());
  }
  Session& spare = *sessions.find({"me", "a"});
  spare.saved_at = 0;
  sessions.lend(spare);
  Prefixes& prefixes = sessions.prefixes();
  const SlotId slot = sessions.find({"me", "b"})->slot;
  prefixes.keep(prefixes.cache().begin("me"), slot, kNow, PrefixWorth::kPrompt);
  EXPECT_GT(prefixes.bytes(), 0);
  sessions.open_anonymous({});
  EXPECT_EQ(prefixes.bytes(), 0);
  EXPECT_TRUE(spare.spare);
  sessions.open_anonymous({});
  EXPECT_EQ(sessions.find({"me", "a"}), nullptr);
}

TEST_F(SessionsTest, TheSourceOfACallDoesNotMakeRoomForIt) {
  for (const char* const id : {"a", "b", "c"}) create(id);
  save("a");
  {
    const HeldSource held(sessions_, sessions_.find({"me", "a"}));
    EXPECT_EQ(sessions_.take_room(1, {}).code(), Code::kResourceExhausted);
  }
  EXPECT_TRUE(sessions_.take_room(1, {}).ok());
}

TEST_F(SessionsTest, AnAccountsSpareSessionsMakeRoomInItsQuota) {
  Caller ada;
  ada.name = ada.account = "ada";
  create("others");
  save("others");
  for (const bool by_share : {false, true}) {
    options_.sessions_per_caller = by_share ? 1 : 0;
    ada.limits.sessions = by_share ? std::nullopt : std::optional<int64_t>(1);
    ada.usage = std::make_shared<AccountUsage>();
    create("a", ada);
    EXPECT_FALSE(sessions_.may_hold(1, ada));
    EXPECT_EQ(sessions_.take_room(1, ada).code(), Code::kResourceExhausted);
    save("a");
    EXPECT_TRUE(sessions_.may_hold(1, ada));
    create("b", ada);
    EXPECT_TRUE(!has("a") && has("b") && has("others"));
    EXPECT_EQ(ada.usage->states(), 1);
    sessions_.forget(*sessions_.find({"me", "b"}));
  }
}

TEST(SessionsDeathTest, OpeningWithoutAFreeSlotStopsTheProcess) {
  FakeModel model(fake_spec(), {.slots = 1, .rows = 1, .values = 1, .steps = 1});
  const EngineOptions options;
  Sessions sessions(model, options);
  sessions.open_anonymous({});
  EXPECT_DEATH(sessions.open_anonymous({}), "slot is free");
}

}  // namespace
}  // namespace runnel
