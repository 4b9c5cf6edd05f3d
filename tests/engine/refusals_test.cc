#include "engine/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fields.h"

namespace runnel {
namespace {

using ::testing::StartsWith;

TEST(Refusals, NameTheirReason) {
  EXPECT_EQ(draining_status().reason(), "draining");
  EXPECT_TRUE(draining_status().retry_after()) << "another server may answer";
  EXPECT_EQ(shutting_down().reason(), "draining");
  EXPECT_EQ(mailbox_full().reason(), "mailbox");
  EXPECT_EQ(calls_used_up("ada", 1).reason(), "quota_calls");
  EXPECT_EQ(values_used_up("ada", 1, std::chrono::seconds(1)).reason(), "quota_values");
  EXPECT_EQ(states_used_up("ada", 1, 2, 2).reason(), "quota_sessions");
  EXPECT_EQ(share_used_up(1, 2, 2).reason(), "sessions_per_caller");
  EXPECT_EQ(no_room(1, 0, 2, 0).reason(), "sessions");
  EXPECT_EQ(others_wait(1, true).reason(), "sessions");
  EXPECT_EQ(queue_full().reason(), "queue");
  EXPECT_EQ(device_failed("m", {Code::kInternal, "gone"}).reason(), "device");
}

TEST(Refusals, ACallThatCanNeverBeServedHasNoReasonToRetry) {
  EXPECT_EQ(no_room(3, 0, 2, 0).reason(), "");
  EXPECT_EQ(no_room(2, 0, 2, 1).code(), Code::kInvalidArgument) << "a stored state keeps its slot";
  EXPECT_EQ(share_used_up(3, 0, 2).reason(), "");
  EXPECT_EQ(states_used_up("ada", 3, 0, 2).reason(), "");
}

TEST(Refusals, NameTheFieldThatAsksForTooMuch) {
  for (const std::string_view field : {fields::kSamples, fields::kCount, fields::kChildren}) {
    EXPECT_EQ(no_room(3, 0, 2, 0, field).field(), field);
    EXPECT_EQ(share_used_up(3, 0, 2, field).field(), field);
    EXPECT_EQ(states_used_up("ada", 3, 0, 2, field).field(), field);
    EXPECT_EQ(no_room(1, 0, 2, 2, field).field(), "") << "every call needs one";
    EXPECT_EQ(no_room(2, 0, 2, 0, field).field(), "") << "there will be room";
  }
  EXPECT_EQ(no_room(3, 0, 2, 0).message(),
            "the call needs 3 states, and the server keeps 2 in all; ask for fewer, or start it "
            "with --sessions 3");
}

TEST(Refusals, CountInTheSingularAndThePlural) {
  EXPECT_THAT(no_room(1, 0, 2, 0).message(), StartsWith("no room for 1 more state: 0 of 2 "));
  EXPECT_THAT(no_room(2, 1, 2, 0).message(), StartsWith("no room for 2 more states: 1 of 2 "));
  EXPECT_THAT(others_wait(1, true).message(),
              StartsWith("free sessions go first to 1 waiting call;"));
  EXPECT_THAT(others_wait(2, true).message(),
              StartsWith("free sessions go first to 2 waiting calls;"));
  EXPECT_EQ(share_used_up(1, 1, 1).message(),
            "one caller may hold 1 state of a model (limits.sessions_per_caller), and 1 is held; "
            "delete sessions that are done, or wait for calls to end");
}

TEST(Refusals, OnlyACallThatMayWaitIsToldToWait) {
  EXPECT_EQ(others_wait(2, true).message(),
            others_wait(2, false).message() + ", or set max_queue_time to wait");
}

TEST(Refusals, NameTheSessionByTheFieldOfTheRequest) {
  EXPECT_EQ(no_session("a", fields::kId).field(), fields::kId);
  EXPECT_EQ(no_session("a", fields::kId).message(), "no session 'a'");
  EXPECT_EQ(no_session("a", fields::kSession).field(), fields::kSession);
  EXPECT_EQ(no_session("a", fields::kSession).message(),
            "no session 'a': create it first, or leave origin.session out");
}

}  // namespace
}  // namespace runnel
