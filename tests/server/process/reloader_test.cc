#include "server/process/reloader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/server/test_models.h"

namespace runnel {
namespace {

// Reloads that wait until a test releases them.
struct Held {
  std::atomic<int> begun{0};
  std::atomic<int> allowed{0};
  Reloader reloader{[this]() -> Result<ReloadReport> {
    const int number = ++begun;
    for (int now = allowed; now < number; now = allowed) allowed.wait(now);
    ReloadReport report;
    report.added = {std::to_string(number)};
    return report;
  }};
  ~Held() { let_go(1 << 20); }

  // Releases all reloads up to this number.
  void let_go(int number) {
    allowed = number;
    allowed.notify_all();
  }
};

TEST(Reloader, ReportsTheOutcomeToTheCaller) {
  Held held;
  held.let_go(1);
  std::promise<Result<ReloadReport>> promise;
  ASSERT_TRUE(held.reloader.ask([&](const auto& report) { promise.set_value(report); }).ok());
  const Result<ReloadReport> report = promise.get_future().get();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->added, std::vector<std::string>{"1"});
}

TEST(Reloader, RunsOneReloadAtATime) {
  Held held;
  ASSERT_TRUE(held.reloader.ask([](const auto&) {}).ok());
  const Status second = held.reloader.ask([](const auto&) { ADD_FAILURE(); });
  EXPECT_EQ(second.code(), Code::kAborted);
  EXPECT_TRUE(second.retry_after().has_value());
  held.let_go(1);
  EXPECT_TRUE(eventually([&] { return held.reloader.ask([](const auto&) {}).ok(); }));
  held.let_go(2);
}

TEST(Reloader, ChangesDuringAReloadCauseAnother) {
  Held held;
  held.reloader.ask_again();
  EXPECT_TRUE(eventually([&] { return held.begun == 1; }));
  for (int i = 0; i < 5; ++i) held.reloader.ask_again();
  held.let_go(1);
  EXPECT_TRUE(eventually([&] { return held.begun == 2; }));
  held.let_go(2);
  EXPECT_TRUE(eventually([&] { return held.reloader.ask([](const auto&) {}).ok(); }));
  EXPECT_TRUE(eventually([&] { return held.begun == 3; })) << "five at once were one";
  held.let_go(3);
}

TEST(Reloader, StoppingAnswersWaitingCallersAtOnce) {
  Held held;
  std::promise<Status> promise;
  const auto done = [&](const Result<ReloadReport>& report) { promise.set_value(report.status()); };
  ASSERT_TRUE(held.reloader.ask(done).ok());
  held.reloader.ask_again();
  held.reloader.stop();
  EXPECT_EQ(promise.get_future().get().code(), Code::kUnavailable) << "while it still runs";
  EXPECT_EQ(held.reloader.ask([](const auto&) {}).code(), Code::kUnavailable);
  held.let_go(1);
}

}  // namespace
}  // namespace runnel
