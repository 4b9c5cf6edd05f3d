#include "server/http/connection_rules.h"

#include <gtest/gtest.h>

#include <utility>

namespace runnel {
namespace {

using std::chrono::seconds;
using Next = ConnectionRules::Next;
using Phase = ConnectionRules::Phase;

constexpr TimePoint kNever = TimePoint::max();

// `second` seconds after the connection was accepted.
TimePoint at(int second) { return TimePoint(seconds(1000 + second)); }

HttpLimits slow_limits() {
  HttpLimits limits;
  limits.read_timeout = seconds(10);
  limits.idle_timeout = seconds(60);
  limits.write_timeout = seconds(30);
  limits.slowest_bytes = 1000;
  limits.heartbeat = seconds(15);
  return limits;
}

class ConnectionRulesTest : public ::testing::Test {
 protected:
  ConnectionRulesTest() {
    rules.next_request(at(0));
    EXPECT_EQ(rules.read(0), Next::kRead);
  }

  // A part of a request arrives.
  void begin(int second) {
    EXPECT_EQ(rules.came(false), Next::kParse);
    rules.begin_request(at(second));
    EXPECT_EQ(rules.needs_more(), Next::kWait);
    EXPECT_EQ(rules.read(10), Next::kRead);
  }
  // A whole request arrives, and its handler starts.
  void ask(int second) {
    begin(second);
    EXPECT_FALSE(rules.takes_answer());
    rules.end_request(at(second));
    EXPECT_TRUE(rules.takes_answer());
  }

  const HttpLimits limits = slow_limits();
  ConnectionRules rules{limits};
};

TEST_F(ConnectionRulesTest, AnIdleConnectionIsClosed) {
  EXPECT_EQ(rules.deadline(), at(60));
  EXPECT_EQ(rules.deadline_passed(at(59)), Next::kWait);
  EXPECT_EQ(rules.deadline_passed(at(60)), Next::kClose);
}

TEST_F(ConnectionRulesTest, ARequestThatTakesTooLongIsRefused) {
  begin(50);
  EXPECT_EQ(rules.deadline(), at(60));
  EXPECT_EQ(rules.came(false), Next::kParse) << "a byte now and then does not help";
  EXPECT_EQ(rules.deadline_passed(at(59)), Next::kWait);
  EXPECT_EQ(rules.deadline_passed(at(60)), Next::kRefuseLate);
  EXPECT_EQ(rules.refuse(100, at(60)), Next::kWrite);
  EXPECT_FALSE(rules.takes_answer());
  EXPECT_EQ(rules.deadline(), at(90));
  EXPECT_EQ(rules.written(100, at(61)), Next::kFinish);
}

TEST_F(ConnectionRulesTest, PreparingAnAnswerHasNoDeadline) {
  ask(1);
  EXPECT_EQ(rules.deadline(), kNever);
  EXPECT_EQ(rules.answer(100, true, at(5000)), Next::kWrite);
  EXPECT_EQ(rules.written(100, at(5001)), Next::kFinish);
  rules.next_request(at(5001));
  EXPECT_EQ(rules.deadline(), at(5061));
}

TEST_F(ConnectionRulesTest, ClosesConnectionsWhoseClientsDoNotReadTheirStream) {
  ask(0);
  EXPECT_EQ(rules.answer(50'000, false, at(0)), Next::kWrite);
  EXPECT_EQ(rules.deadline(), at(30));
  EXPECT_EQ(rules.written(1, at(29)), Next::kWrite);
  EXPECT_EQ(rules.deadline(), at(59)) << "any progress will do";
  EXPECT_EQ(rules.answer(1000, false, at(50)), Next::kWait);
  EXPECT_EQ(rules.deadline(), at(59)) << "more to send is no progress";
  EXPECT_EQ(rules.deadline_passed(at(59)), Next::kClose);
}

TEST_F(ConnectionRulesTest, TheTimeToReadAnAnswerGrowsWithItsLength) {
  ask(0);
  EXPECT_EQ(rules.answer(100'000, true, at(0)), Next::kWrite);
  for (const int second : {29, 58, 87}) {
    EXPECT_EQ(rules.written(1, at(second)), Next::kWrite);
    EXPECT_EQ(rules.deadline(), at(second + 30));
  }
  EXPECT_EQ(rules.written(1, at(116)), Next::kWrite);
  EXPECT_EQ(rules.deadline(), at(130)) << "30 s, and a second for each 1000 bytes";
  EXPECT_EQ(rules.deadline_passed(at(130)), Next::kClose);
}

TEST_F(ConnectionRulesTest, TheRestOfAnEndedStreamHasTimeInProportionToItsLength) {
  ask(0);
  EXPECT_EQ(rules.answer(100'000, false, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(97'000, at(1)), Next::kWrite);
  EXPECT_EQ(rules.answer(0, true, at(10)), Next::kWait);
  EXPECT_EQ(rules.written(1, at(30)), Next::kWrite);
  EXPECT_EQ(rules.deadline(), at(10 + 30 + 3));
}

TEST_F(ConnectionRulesTest, AStreamFinishesAtOnceIfAllItsBytesAreSent) {
  ask(0);
  EXPECT_EQ(rules.answer(0, false, at(0)), Next::kWait);
  EXPECT_EQ(rules.answer(10, false, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(1)), Next::kWait);
  EXPECT_EQ(rules.answer(0, true, at(2)), Next::kFinish);
}

TEST_F(ConnectionRulesTest, AnIdleStreamGetsHeartbeats) {
  ask(0);
  rules.set_heartbeat();
  EXPECT_EQ(rules.answer(10, false, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(1)), Next::kWait);
  EXPECT_EQ(rules.deadline(), at(16));
  EXPECT_EQ(rules.deadline_passed(at(16)), Next::kHeartbeat);
  EXPECT_EQ(rules.send(5, at(16)), Next::kWrite);
  EXPECT_EQ(rules.deadline(), at(46)) << "it must be taken, too";
  EXPECT_EQ(rules.written(5, at(17)), Next::kWait);
  EXPECT_EQ(rules.deadline(), at(32));
  EXPECT_EQ(rules.answer(10, false, at(31)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(31)), Next::kWait);
  EXPECT_EQ(rules.deadline(), at(46)) << "a chunk is as good";
}

TEST_F(ConnectionRulesTest, AStreamWithoutAHeartbeatHasNone) {
  ask(0);
  rules.set_heartbeat();
  EXPECT_EQ(rules.answer(10, true, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(1)), Next::kFinish);
  rules.next_request(at(1));
  ask(1);
  EXPECT_EQ(rules.answer(10, false, at(1)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(2)), Next::kWait);
  EXPECT_EQ(rules.deadline(), kNever) << "that of the answer before is not its own";
}

TEST_F(ConnectionRulesTest, AClientThatWaitsToSendTheBodyIsToldOnce) {
  begin(0);
  EXPECT_EQ(rules.want_body(), Next::kWait) << "it does not wait";
  rules.expect_continue();
  EXPECT_EQ(rules.want_body(), Next::kContinue);
  EXPECT_EQ(rules.send(25, at(1)), Next::kWrite);
  EXPECT_EQ(rules.want_body(), Next::kWait);
  EXPECT_EQ(rules.deadline(), at(10)) << "that of the request";
  EXPECT_EQ(rules.written(25, at(2)), Next::kWait);
  EXPECT_EQ(rules.deadline(), at(10));
  rules.end_request(at(3));
  EXPECT_EQ(rules.deadline(), kNever);
}

TEST_F(ConnectionRulesTest, AClientThatWaitsToSendTheBodyIsNotToldAfterTheAnswer) {
  begin(0);
  rules.expect_continue();
  rules.end_request(at(0));
  EXPECT_EQ(rules.answer(100, false, at(1)), Next::kWrite);
  EXPECT_EQ(rules.want_body(), Next::kWait);
}

TEST_F(ConnectionRulesTest, AnInterimAnswerMustBeReadInTimeToo) {
  begin(0);
  EXPECT_EQ(rules.send(25, at(1)), Next::kWrite);
  rules.end_request(at(5));
  EXPECT_EQ(rules.deadline(), at(35));
  EXPECT_EQ(rules.deadline_passed(at(35)), Next::kClose);
}

TEST_F(ConnectionRulesTest, PipelinedRequestsAreBufferedUpToABound) {
  ask(0);
  EXPECT_EQ(rules.came(false), Next::kPass);
  EXPECT_EQ(rules.read(kHttpReadBytes - 1), Next::kRead);
  EXPECT_EQ(rules.read(kHttpReadBytes - 1), Next::kWait) << "it reads already";
  EXPECT_EQ(rules.came(false), Next::kPass);
  EXPECT_EQ(rules.read(kHttpReadBytes), Next::kWatch);
  EXPECT_EQ(rules.read(kHttpReadBytes), Next::kWait) << "it watches already";
  EXPECT_TRUE(rules.watched(kHttpReadBytes));
  EXPECT_EQ(rules.read(kHttpReadBytes), Next::kWatch);
  EXPECT_EQ(rules.answer(10, true, at(1)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(1)), Next::kFinish);
  rules.next_request(at(1));
  rules.begin_request(at(1));
  EXPECT_FALSE(rules.watched(kHttpReadBytes));
  EXPECT_EQ(rules.read(kHttpReadBytes), Next::kRead);
}

TEST_F(ConnectionRulesTest, AClientThatEndsItsSendingIsAnswered) {
  ask(0);
  EXPECT_EQ(rules.came(true), Next::kPass);
  EXPECT_TRUE(rules.client_ended());
  EXPECT_EQ(rules.read(0), Next::kWatch) << "it may have gone";
  EXPECT_TRUE(rules.watched(0));
  EXPECT_EQ(rules.probe(), Next::kContinue);
  EXPECT_EQ(rules.send(25, at(1)), Next::kWrite);
  EXPECT_EQ(rules.probe(), Next::kWait) << "the last one is still on its way";
  EXPECT_EQ(rules.written(25, at(2)), Next::kWait);
  EXPECT_EQ(rules.probe(), Next::kContinue);
  EXPECT_EQ(rules.answer(10, true, at(3)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(3)), Next::kFinish);
  rules.next_request(at(3));
  EXPECT_EQ(rules.needs_more(), Next::kClose) << "no further request has come";
  EXPECT_EQ(rules.read(0), Next::kWait);
}

TEST_F(ConnectionRulesTest, AStreamThatHasBegunNeedsNoProbe) {
  ask(0);
  EXPECT_EQ(rules.came(true), Next::kPass);
  EXPECT_EQ(rules.answer(10, false, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(0)), Next::kWait);
  EXPECT_EQ(rules.probe(), Next::kWait);
}

TEST_F(ConnectionRulesTest, ARequestThatIsCutOffIsRefused) {
  begin(0);
  EXPECT_EQ(rules.came(true), Next::kParse);
  EXPECT_EQ(rules.needs_more(), Next::kRefuseCut);
  EXPECT_EQ(rules.refuse(100, at(1)), Next::kWrite);
  EXPECT_EQ(rules.written(100, at(1)), Next::kFinish);
  EXPECT_EQ(rules.hang_up(false, at(1)), Next::kClose) << "it does not wait for the client's end";
}

TEST_F(ConnectionRulesTest, AConnectionLingersUntilItsClientClosesOrTwoSecondsArePast) {
  ask(0);
  EXPECT_EQ(rules.answer(10, true, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(1)), Next::kFinish);
  EXPECT_EQ(rules.hang_up(false, at(1)), Next::kLinger);
  EXPECT_EQ(rules.came(false), Next::kWait);
  EXPECT_EQ(rules.read(0), Next::kRead);
  EXPECT_EQ(rules.deadline(), at(3));
  EXPECT_EQ(rules.deadline_passed(at(3)), Next::kClose);
  EXPECT_EQ(rules.came(true), Next::kClose);
}

TEST_F(ConnectionRulesTest, LingersLongerForTheRestOfABodyInPieces) {
  ask(0);
  EXPECT_EQ(rules.answer(10, true, at(0)), Next::kWrite);
  EXPECT_EQ(rules.written(10, at(1)), Next::kFinish);
  EXPECT_EQ(rules.hang_up(true, at(1)), Next::kLinger);
  EXPECT_EQ(rules.deadline(), at(31));
}

TEST_F(ConnectionRulesTest, AConnectionClosesOnce) {
  ask(0);
  EXPECT_EQ(rules.answer(10, false, at(0)), Next::kWrite);
  EXPECT_TRUE(rules.close());
  EXPECT_FALSE(rules.close());
  EXPECT_EQ(rules.phase(), Phase::kClosed);
  EXPECT_EQ(rules.deadline(), kNever);
  EXPECT_EQ(rules.read(0), Next::kWait);
  EXPECT_FALSE(rules.takes_answer());
}

TEST(LingeringShare, IsTheSameForEachThreadAndAtLeastOne) {
  HttpLimits limits;
  limits.lingering = 8;
  for (const auto& [threads, share] : {std::pair{1, 8}, {2, 4}, {3, 2}, {16, 1}}) {
    limits.threads = threads;
    EXPECT_EQ(lingering_share(limits), share);
  }
}

}  // namespace
}  // namespace runnel
