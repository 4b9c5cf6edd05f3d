#include "engine/session.h"

#include <gtest/gtest.h>

#include <ctime>

#include "engine/session_table.h"

namespace runnel {
namespace {

using S = SessionPhase;
using E = SessionEvent;

// Lists every allowed pair. All other pairs must be refused.
TEST(Session, TheTableHasTheseTransitionsAndNoOthers) {
  const std::map<std::pair<S, E>, S> allowed = {
      {{S::kNew, E::kFeed}, S::kPrompting},    {{S::kNew, E::kSample}, S::kGenerating},
      {{S::kNew, E::kEnd}, S::kEnded},         {{S::kPrompting, E::kSample}, S::kGenerating},
      {{S::kPrompting, E::kPause}, S::kIdle},  {{S::kPrompting, E::kEnd}, S::kEnded},
      {{S::kGenerating, E::kPause}, S::kIdle}, {{S::kGenerating, E::kEnd}, S::kEnded},
      {{S::kIdle, E::kFeed}, S::kPrompting},   {{S::kIdle, E::kSample}, S::kGenerating},
      {{S::kIdle, E::kEnd}, S::kEnded},        {{S::kNew, E::kMove}, S::kMoving},
      {{S::kIdle, E::kMove}, S::kMoving},      {{S::kMoving, E::kPause}, S::kIdle},
      {{S::kMoving, E::kEnd}, S::kEnded}};
  for (int state = 0; state <= static_cast<int>(S::kEnded); ++state) {
    for (int event = 0; event <= static_cast<int>(E::kEnd); ++event) {
      const auto key = std::pair{static_cast<S>(state), static_cast<E>(event)};
      const auto it = allowed.find(key);
      const auto expected = it == allowed.end() ? std::nullopt : std::optional(it->second);
      EXPECT_EQ(next_state(key.first, key.second), expected)
          << session_phase_name(key.first) << " " << event;
    }
  }
}

TEST(SessionDeathTest, AnEventThatCannotHappenStopsTheProcess) {
  Session session;
  EXPECT_DEATH(session.apply(E::kPause), "table");
}

TEST(SessionTable, SeparatesOwnersAndPagesById) {
  SessionTable table;
  for (const char* id : {"c", "a", "b"}) {
    Session session;
    session.key = {"x", id};
    table.insert(std::move(session));
  }
  Session other;
  other.key = {"y", "a"};
  table.insert(std::move(other));

  EXPECT_EQ(table.find({"y", "b"}), nullptr);
  EXPECT_NE(table.find({"x", "b"}), nullptr);
  const SessionPage first = table.page("x", "", 2, {});
  ASSERT_EQ(first.sessions.size(), 2U);
  EXPECT_EQ(first.sessions[0].key.id, "a");
  EXPECT_EQ(first.next, "b");
  const SessionPage rest = table.page("x", first.next, 2, {});
  ASSERT_EQ(rest.sessions.size(), 1U);
  EXPECT_EQ(rest.sessions[0].key.id, "c");
  EXPECT_EQ(rest.next, "");
}

TEST(SessionTable, ErasesOnlySessionsThatAreIdleLongEnough) {
  SessionTable table;
  for (const char* id : {"works", "rests", "came"}) {
    Session session;
    session.key = {"", id};
    session.idle_since = TimePoint(std::chrono::seconds(10));
    table.insert(std::move(session));
  }
  table.find({"", "works"})->apply(E::kFeed);
  table.find({"", "came"})->idle_since = TimePoint(std::chrono::seconds(11));
  std::vector<std::string> ended;
  const auto end = [&](const Session& session) { ended.push_back(session.key.id); };
  table.erase_rested(TimePoint(std::chrono::seconds(10)), end);
  EXPECT_TRUE(ended.empty());
  table.erase_rested(TimePoint(std::chrono::seconds(11)), end);
  EXPECT_EQ(ended, std::vector<std::string>{"rests"});
  EXPECT_EQ(table.page("", "", 3, {}).sessions.size(), 2U);
}

// 20,000 sessions that stay come before 20,000 that expire. A search from the start for each
// expired session would take seconds.
TEST(SessionTable, ExpiryTakesOnePass) {
  constexpr int kSessions = 20000;
  SessionTable table;
  for (int i = 0; i < 2 * kSessions; ++i) {
    Session session;
    session.key = {"", (i < kSessions ? "a" : "b") + std::to_string(i)};
    session.idle_since = TimePoint(std::chrono::seconds(i < kSessions ? 20 : 10));
    table.insert(std::move(session));
  }
  const std::clock_t before = std::clock();
  table.erase_rested(TimePoint(std::chrono::seconds(15)), [](Session&) {});
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.5);
  EXPECT_EQ(std::ssize(table.page("", "", 2 * kSessions, {}).sessions), kSessions);
}

}  // namespace
}  // namespace runnel
