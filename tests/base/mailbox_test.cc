#include "base/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace runnel {
namespace {

constexpr int64_t kBytes = 1000;

TEST(Mailbox, TakesInTheOrderOfPutting) {
  Mailbox<int> mailbox(3, kBytes);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(mailbox.put(int{i}, 0));
  EXPECT_EQ(mailbox.look(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(mailbox.take(), i);
  EXPECT_EQ(mailbox.take(), std::nullopt);
}

TEST(Mailbox, AFullMailboxRefusesAtOnceAndLeavesTheItemToTheCaller) {
  Mailbox<std::unique_ptr<int>> mailbox(1, kBytes);
  EXPECT_TRUE(mailbox.put(std::make_unique<int>(1), 0));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(mailbox.put(std::move(second), 0));
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(mailbox.take().has_value());
  EXPECT_TRUE(mailbox.put(std::move(second), 0));
}

TEST(Mailbox, BytesAreBoundedExceptThoseOfASingleItem) {
  Mailbox<int> mailbox(10, kBytes);
  EXPECT_TRUE(mailbox.put(1, 2 * kBytes));
  EXPECT_FALSE(mailbox.put(2, 1));
  EXPECT_EQ(mailbox.take(), 1);
  EXPECT_TRUE(mailbox.put(3, kBytes - 1));
  EXPECT_TRUE(mailbox.put(4, 1));
  EXPECT_FALSE(mailbox.put(5, 1));
  EXPECT_TRUE(mailbox.put(6, 0));
}

TEST(Mailbox, AFullMailboxTakesAnItemThatHasABoundOfItsOwn) {
  Mailbox<int> mailbox(1, kBytes);
  EXPECT_TRUE(mailbox.put(1, kBytes));
  EXPECT_TRUE(mailbox.put_beyond(2, kBytes));
  EXPECT_EQ(mailbox.look(), 2U);
  EXPECT_EQ(mailbox.take(), 1);
  EXPECT_FALSE(mailbox.put(3, 0)) << "it counts";
  mailbox.close();
  EXPECT_FALSE(mailbox.put_beyond(4, 0));
}

TEST(Mailbox, AClosedMailboxRefusesItemsButCanBeEmptied) {
  Mailbox<int> mailbox(2, kBytes);
  EXPECT_TRUE(mailbox.put(1, 0));
  mailbox.close();
  EXPECT_TRUE(mailbox.closed());
  EXPECT_FALSE(mailbox.put(2, 0));
  EXPECT_EQ(mailbox.take(), 1);
}

TEST(Mailbox, WaitEndsWithAnItemANudgeACloseOrTheTime) {
  Mailbox<int> mailbox(1, kBytes);
  mailbox.wait(std::chrono::milliseconds(1));  // returns after the timeout
  for (const auto& wake :
       std::vector<std::function<void()>>{[&] { EXPECT_TRUE(mailbox.put(1, 0)); },
                                          [&] { mailbox.nudge(); }, [&] { mailbox.close(); }}) {
    std::thread other(wake);
    mailbox.wait(std::chrono::hours(1));
    other.join();
    mailbox.look();
    mailbox.take();
  }
}

TEST(Mailbox, ManyThreadsPutAndNothingIsLost) {
  Mailbox<int> mailbox(64, kBytes);
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        for (int seen = taken; !mailbox.put(t * kEach + i, 1); seen = taken) taken.wait(seen);
      }
    });
  }
  std::vector<int> count(kThreads * kEach);
  while (taken < kThreads * kEach) {
    mailbox.wait(std::chrono::milliseconds(100));
    while (const std::optional<int> item = mailbox.take()) {
      ++count[*item];
      ++taken;
      taken.notify_all();
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const int n : count) EXPECT_EQ(n, 1);
}

}  // namespace
}  // namespace runnel
