#include "server/host/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace runnel {
namespace {

using ::testing::HasSubstr;

std::string text_event(std::string_view event, std::initializer_list<LogField> fields) {
  return format_event(false, event, {fields.begin(), fields.size()});
}

TEST(EventLog, TextIsOneLineOfNamesAndValues) {
  EXPECT_EQ(
      text_event(
          "ready",
          {{"address", "127.0.0.1:50051"}, {"models", int64_t{2}}, {"share", 0.5}, {"warm", true}}),
      "ready address=127.0.0.1:50051 models=2 share=0.5 warm=true");
  EXPECT_EQ(text_event("x", {{"a", ""}, {"b", "two words"}, {"c", "a\nb\"c\\"}}),
            "x a=\"\" b=\"two words\" c=\"a\\nb\\\"c\\\\\"");
}

TEST(EventLog, JsonLinesAreValidForAnyBytes) {
  std::ostringstream out;
  const EventLog log("info", true, out);
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  log.info("refused", {{"message", every + "{}%v {"}, {"count", int64_t{-3}}, {"on", false}});
  log.error("failed", {});
  std::istringstream lines(out.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto first = nlohmann::json::parse(line);
  EXPECT_EQ(first["event"], "refused");
  EXPECT_EQ(first["level"], "info");
  EXPECT_EQ(first["count"], -3);
  EXPECT_EQ(first["on"], false);
  EXPECT_THAT(first["message"].get<std::string>(), HasSubstr("{}%v {"));
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(nlohmann::json::parse(line)["level"], "error");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(EventLog, WritesEventsOfItsLevelAndAbove) {
  std::ostringstream out;
  const EventLog log("warn", false, out);
  log.debug("a", {});
  log.info("b", {});
  log.warn("c", {});
  EXPECT_THAT(out.str(), HasSubstr(" warn c\n"));
  EXPECT_THAT(out.str(), ::testing::Not(HasSubstr(" b")));
  EXPECT_FALSE(log.wants_debug());
  EXPECT_TRUE(EventLog("debug", false, out).wants_debug());
}

// The format in the docs is 2026-01-31T12:00:00.000+00:00.
TEST(EventLog, TimesHaveTheDocumentedFormat) {
  const char* const time =
      "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}[+-][0-9]{2}:[0-9]{2}";
  std::ostringstream text, json;
  EventLog("info", false, text).info("ready", {});
  EventLog("info", true, json).info("ready", {});
  EXPECT_THAT(text.str(), ::testing::MatchesRegex(std::string(time) + " info ready\n"));
  EXPECT_THAT(nlohmann::json::parse(json.str())["time"].get<std::string>(),
              ::testing::MatchesRegex(time));
}

}  // namespace
}  // namespace runnel
