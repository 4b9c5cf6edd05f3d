#include "server/host/fair_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace runnel {
namespace {

TEST(FairThread, AccountsTakeTurns) {
  std::vector<std::string> done;
  {
    std::promise<void> posted;  // outlives the thread, which may start late
    FairThread thread;
    thread.post("first", [&] { posted.get_future().wait(); });
    for (const char* const task : {"a1", "a2", "a3", "b1", "c1", "b2"}) {
      thread.post(std::string(1, *task), [&done, task] { done.emplace_back(task); });
    }
    posted.set_value();
  }
  EXPECT_EQ(done, (std::vector<std::string>{"a1", "b1", "c1", "a2", "b2", "a3"}));
}

// The posting thread may still be inside post() after its task has run, as TSan would report.
TEST(FairThread, CanBeDestroyedOnceItsTaskHasRun) {
  int destroyed = 0;
  for (int i = 0; i < 200; ++i) {
    std::latch done(1);
    auto thread = std::make_unique<FairThread>();
    std::thread poster(
        [&done, posted = thread.get()] { posted->post("a", [&] { done.count_down(); }); });
    done.wait();
    thread.reset();
    poster.join();
    ++destroyed;
  }
  EXPECT_EQ(destroyed, 200);
}

TEST(FairThread, CanBeDestroyedWithoutATask) {
  {
    const FairThread thread;
  }
  SUCCEED() << "the destructor returned: the thread does not wait for a first task";
}

TEST(FairThread, AnExceptionEndsOnlyItsTask) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  Mishaps mishaps(log);
  int done = 0;
  {
    FairThread thread(&mishaps);
    thread.post("a", [] { throw std::bad_alloc(); });
    thread.post("a", [&done] { ++done; });
  }
  EXPECT_EQ(done, 1);
  EXPECT_NE(text.str().find("mishap"), std::string::npos);
}

}  // namespace
}  // namespace runnel
