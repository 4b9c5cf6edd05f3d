#include "server/host/live_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/base/eventually.h"

namespace runnel {
namespace {

// A call that records what is done to it.
struct NotingCall final : LiveCall {
  void end(const Status& status) override {
    ended = status;
    if (on_end) on_end();
  }
  void tend(TimePoint now) override { tended = now; }

  Status ended;
  TimePoint tended{};
  std::function<void()> on_end;
};

TEST(LiveCalls, WaitsUntilNoneRuns) {
  LiveCalls calls;
  EXPECT_TRUE(calls.wait_until_none(Duration(0)));
  const auto call = std::make_shared<NotingCall>();
  calls.enter(call);
  EXPECT_EQ(calls.count(), 1);
  EXPECT_FALSE(calls.wait_until_none(std::chrono::milliseconds(5)));
  // The call leaves before the wait, or while it lasts.
  for (int round = 0; round < 100; ++round) {
    calls.enter(call);
    std::thread leaver([&] { calls.leave(call); });
    EXPECT_TRUE(calls.wait_until_none(kPatience));
    leaver.join();
    EXPECT_EQ(calls.count(), 0);
  }
}

TEST(LiveCalls, WaitsUntilNoCallHasStartedForAWhile) {
  LiveCalls calls;
  const auto began = std::chrono::steady_clock::now();
  calls.wait_until_quiet(std::chrono::milliseconds(5), std::chrono::hours(1));
  EXPECT_LT(std::chrono::steady_clock::now() - began, kPatience);
  // The wait ends at its limit, although a call still runs.
  const auto call = std::make_shared<NotingCall>();
  calls.enter(call);
  calls.wait_until_quiet(std::chrono::milliseconds(5), std::chrono::milliseconds(30));
  calls.leave(call);
  std::atomic<bool> stop{false};
  std::thread comer([&] {
    while (!stop) {
      calls.enter(call);
      calls.leave(call);
    }
  });
  calls.wait_until_quiet(std::chrono::seconds(1), std::chrono::milliseconds(30));
  stop = true;
  comer.join();
}

TEST(LiveCalls, EndsEachRunningCallAndACallMayLeaveWhileItIsEnded) {
  LiveCalls calls;
  std::vector<std::shared_ptr<NotingCall>> running(3);
  for (auto& call : running) {
    call = std::make_shared<NotingCall>();
    call->on_end = [&] { calls.leave(call); };
    calls.enter(call);
  }
  calls.leave(running[1]);
  calls.end_all({Code::kUnavailable, "over"});
  EXPECT_EQ(running[0]->ended.message(), "over");
  EXPECT_TRUE(running[1]->ended.ok());
  EXPECT_EQ(running[2]->ended.message(), "over");
  EXPECT_EQ(calls.count(), 0);
}

TEST(LiveCalls, TellsEachRunningCallTheTime) {
  LiveCalls calls;
  const auto running = std::make_shared<NotingCall>();
  const auto gone = std::make_shared<NotingCall>();
  calls.enter(running);
  calls.enter(gone);
  calls.leave(gone);
  const TimePoint now(std::chrono::seconds(7));
  calls.tend_all(now);
  EXPECT_EQ(running->tended, now);
  EXPECT_EQ(gone->tended, TimePoint());
}

TEST(LiveCalls, KeepsACallUntilItLeaves) {
  LiveCalls calls;
  auto call = std::make_shared<NotingCall>();
  const std::weak_ptr<NotingCall> seen = call;
  calls.enter(call);
  calls.leave(std::exchange(call, nullptr));
  EXPECT_TRUE(seen.expired());
}

TEST(LiveCalls, ManyThreadsComeAndGo) {
  LiveCalls calls;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const auto call = std::make_shared<NotingCall>();
        calls.enter(call);
        calls.leave(call);
      }
    });
  }
  std::thread ender([&] {
    while (!stop) calls.end_all({Code::kAborted, "x"});
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  ender.join();
  EXPECT_TRUE(calls.wait_until_none(Duration(0)));
}

}  // namespace
}  // namespace runnel
