#include "server/live_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace runnel {
namespace {

LiveCalls::Handle ignoring() {
  return {.end = [](const Status&) {}, .cut_off = [](Duration) {}};
}

TEST(LiveCalls, WaitsUntilNoneRuns) {
  LiveCalls calls;
  EXPECT_TRUE(calls.wait_until_none(Duration(0)));
  const auto id = calls.enter(ignoring());
  EXPECT_EQ(calls.count(), 1);
  EXPECT_FALSE(calls.wait_until_none(std::chrono::milliseconds(5)));
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    calls.leave(id);
  });
  EXPECT_TRUE(calls.wait_until_none(std::chrono::seconds(30)));
  leaver.join();
  EXPECT_EQ(calls.count(), 0);
}

TEST(LiveCalls, IsQuietWhenNoneHasComeForAWhile) {
  LiveCalls calls;
  const auto began = std::chrono::steady_clock::now();
  calls.wait_until_quiet(std::chrono::milliseconds(5), std::chrono::seconds(30));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  // Calls that keep coming, or one that runs on, are not waited for beyond the limit.
  const auto id = calls.enter(ignoring());
  calls.wait_until_quiet(std::chrono::milliseconds(5), std::chrono::milliseconds(30));
  calls.leave(id);
  std::atomic<bool> stop{false};
  std::thread comer([&] {
    while (!stop) calls.leave(calls.enter(ignoring()));
  });
  calls.wait_until_quiet(std::chrono::seconds(1), std::chrono::milliseconds(30));
  stop = true;
  comer.join();
}

TEST(LiveCalls, EndsEachThatRunsAndMayBeLeftFromThere) {
  LiveCalls calls;
  std::vector<LiveCalls::Id> ids(3);
  std::vector<Status> ends(3);
  for (int i = 0; i < 3; ++i) {
    ids[i] = calls.enter({.end =
                              [&, i](const Status& status) {
                                ends[i] = status;
                                calls.leave(ids[i]);
                              },
                          .cut_off = [](Duration) {}});
  }
  calls.leave(ids[1]);
  calls.end_all({Code::kUnavailable, "over"});
  EXPECT_EQ(ends[0].message(), "over");
  EXPECT_TRUE(ends[1].ok());
  EXPECT_EQ(ends[2].message(), "over");
  EXPECT_EQ(calls.count(), 0);
}

TEST(LiveCalls, ManyThreadsComeAndGo) {
  LiveCalls calls;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) calls.leave(calls.enter(ignoring()));
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
