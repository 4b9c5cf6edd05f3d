#include "server/host/task_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <new>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace runnel {
namespace {

struct Once {
  std::function<void()> body;
  void run() { body(); }
};

void post(TaskThread& thread, std::function<void()> body) {
  thread.post<&Once::run>(std::make_shared<Once>(std::move(body)));
}

TEST(TaskThread, RunsAllPostedTasksInOrderBeforeItEnds) {
  std::vector<int> done;
  {
    TaskThread thread;
    for (int i = 0; i < 10000; ++i) post(thread, [&done, i] { done.push_back(i); });
  }
  ASSERT_EQ(done.size(), 10000U);
  for (int i = 0; i < 10000; ++i) EXPECT_EQ(done[i], i);
}

TEST(TaskThread, TasksAndManyThreadsMayPost) {
  std::atomic<int> done{0};
  {
    TaskThread thread;
    std::vector<std::thread> posters;
    for (int t = 0; t < 4; ++t) {
      posters.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          post(thread, [&] {
            ++done;
            post(thread, [&] { ++done; });
          });
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  EXPECT_EQ(done, 8000);
}

// The posting thread may still be inside post() after its task has run, as TSan would report.
TEST(TaskThread, CanBeDestroyedOnceItsTaskHasRun) {
  int destroyed = 0;
  for (int i = 0; i < 200; ++i) {
    std::latch done(1);
    auto thread = std::make_unique<TaskThread>();
    std::thread poster(
        [&done, posted = thread.get()] { post(*posted, [&] { done.count_down(); }); });
    done.wait();
    thread.reset();
    poster.join();
    ++destroyed;
  }
  EXPECT_EQ(destroyed, 200);
}

TEST(TaskThread, AnExceptionEndsOnlyItsTaskAndIsLoggedAtMostOnceASecond) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  Clock clock{TimePoint(std::chrono::hours(1))};
  Mishaps mishaps(log, clock);
  int done = 0;
  {
    TaskThread thread(&mishaps);
    for (int i = 0; i < 100; ++i) {
      post(thread, [] { throw std::bad_alloc(); });
      post(thread, [&done] { ++done; });
    }
  }
  EXPECT_EQ(done, 100);
  EXPECT_THAT(text.str(), testing::HasSubstr("warn mishap message=std::bad_alloc times=1\n"));
  EXPECT_EQ(std::ranges::count(text.str(), '\n'), 1);
  clock.advance(std::chrono::seconds(1));
  mishaps.contain([] { throw std::bad_alloc(); });
  EXPECT_THAT(text.str(), testing::EndsWith("times=100\n"));
}

TEST(TaskThread, CanBeDestroyedWithoutATask) {
  {
    const TaskThread thread;
  }
  SUCCEED() << "the destructor returned: the thread does not wait for a first task";
}

}  // namespace
}  // namespace runnel
