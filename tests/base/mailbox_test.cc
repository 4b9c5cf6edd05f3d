#include "base/mailbox.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

namespace runnel {
namespace {

TEST(Mailbox, TakesInTheOrderOfPutting) {
  Mailbox<int> mailbox(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(mailbox.put(int{i}));
  std::vector<int> taken;
  mailbox.take(taken);
  EXPECT_EQ(taken, (std::vector{0, 1, 2}));
  mailbox.take(taken);
  EXPECT_TRUE(taken.empty());
}

TEST(Mailbox, AFullOneRefusesAtOnceAndLeavesTheItem) {
  Mailbox<std::unique_ptr<int>> mailbox(1);
  EXPECT_TRUE(mailbox.put(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(mailbox.put(std::move(second)));
  ASSERT_NE(second, nullptr);
  std::vector<std::unique_ptr<int>> taken;
  mailbox.take(taken);
  EXPECT_TRUE(mailbox.put(std::move(second)));
}

TEST(Mailbox, AClosedOneRefusesButCanBeEmptied) {
  Mailbox<int> mailbox(2);
  EXPECT_TRUE(mailbox.put(1));
  mailbox.close();
  EXPECT_TRUE(mailbox.closed());
  EXPECT_FALSE(mailbox.put(2));
  std::vector<int> taken;
  mailbox.take(taken);
  EXPECT_EQ(taken, std::vector{1});
}

TEST(Mailbox, WaitEndsWithAnItemANudgeACloseOrTheTime) {
  Mailbox<int> mailbox(1);
  mailbox.wait(std::chrono::milliseconds(1));  // returns by itself
  std::vector<int> taken;
  for (const auto& wake :
       std::vector<std::function<void()>>{[&] { EXPECT_TRUE(mailbox.put(1)); },
                                          [&] { mailbox.nudge(); }, [&] { mailbox.close(); }}) {
    std::thread other(wake);
    mailbox.wait(std::chrono::hours(1));
    other.join();
    mailbox.take(taken);
  }
}

TEST(Mailbox, ManyThreadsPutAndNothingIsLost) {
  Mailbox<int> mailbox(64);
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&mailbox, t] {
      for (int i = 0; i < kEach; ++i) {
        while (!mailbox.put(t * kEach + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> count(kThreads * kEach);
  std::vector<int> taken;
  for (int received = 0; received < kThreads * kEach; received += static_cast<int>(taken.size())) {
    mailbox.wait(std::chrono::milliseconds(100));
    mailbox.take(taken);
    for (const int item : taken) ++count[item];
  }
  for (std::thread& thread : threads) thread.join();
  for (const int n : count) EXPECT_EQ(n, 1);
}

}  // namespace
}  // namespace runnel
