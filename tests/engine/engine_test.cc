// The engine with its own thread: faults that only concurrency can cause.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <random>

#include "tests/base/eventually.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

// Reads a stream to its end on the calling thread.
class BlockingReader {
 public:
  BlockingReader(Engine& engine, const GenerateRequest& request)
      : stream_(std::make_shared<TokenStream>(request.delivery, engine.stream_room(request.samples),
                                              request.top_log_probs, [this] { wake(); })) {
    refused_ = engine.generate(request, stream_);
  }

  // The end of the stream. Fails if it does not come in time.
  Status finish() {
    if (!refused_.ok()) return refused_;
    StreamGroup group;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        const bool woken = wake_.wait_for(lock, std::chrono::seconds(60), [&] { return woken_; });
        EXPECT_TRUE(woken);
        if (!woken) return {Code::kDeadlineExceeded, "no wake"};
        woken_ = false;
      }
      while (stream_->take(group)) {
        for (const StreamValue& value : group.values) values.push_back(value.value);
        if (group.end) return *group.end;
      }
    }
  }

  TokenStream& stream() { return *stream_; }
  std::vector<int32_t> values;

 private:
  void wake() {
    std::lock_guard lock(mutex_);
    woken_ = true;
    wake_.notify_one();
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  Status refused_;
  std::shared_ptr<TokenStream> stream_;
};

std::unique_ptr<Engine> make_engine(const Clock& clock, int slots, EngineOptions options = {}) {
  return std::make_unique<Engine>(
      std::make_unique<FakeModel>(
          fake_spec(), ModelLimits{.slots = slots, .rows = slots, .values = 4 * slots, .steps = 4}),
      options, clock);
}

TEST(EngineThreads, TheLargestLimitsGiveAStreamItsRoom) {
  const Clock clock;
  EngineOptions options;
  options.samples = limits::kSamples.max;
  options.stream_room = limits::kStreamRoom.max;
  const auto engine = make_engine(clock, 2, options);
  EXPECT_EQ(engine->stream_room(1), limits::kStreamRoom.max);
  for (const int samples : {2048, 4096}) {  // 2^31 and 2^32 values
    EXPECT_EQ(engine->stream_room(samples), std::numeric_limits<int>::max());
  }
}

TEST(EngineThreads, ConcurrentCallersGetTheSameValuesAsAlone) {
  const Clock clock;
  const auto engine = make_engine(clock, 16);
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 20; ++i) {
        const std::vector<int32_t> prompt(1 + random() % 20, t);
        const int count = 1 + static_cast<int>(random() % 100);
        BlockingReader reader(*engine, request_of(prompt, count, i));
        const Status status = reader.finish();
        EXPECT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(reader.values, FakeModel::expected(fake_spec(), prompt, i, 0, count));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(eventually([&] { return engine->active_calls() == 0; }));
  EXPECT_EQ(engine->stats().sessions_free, 16);
}

TEST(EngineThreads, CancelsAtRandomTimesLeakNothing) {
  const Clock clock;
  const auto engine = make_engine(clock, 8);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 50; ++i) {
        BlockingReader reader(*engine, request_of({1, 2, 3}, 100000));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        reader.stream().cancel();
        const Status status = reader.finish();
        EXPECT_EQ(status.code(), Code::kCancelled) << status.to_string();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(eventually([&] { return engine->stats().sessions_free == 8; }));
}

TEST(EngineThreads, DestructionEndsRunningCalls) {
  const Clock clock;
  auto engine = make_engine(clock, 4);
  BlockingReader running(*engine, request_of({1}, 1000000));
  engine.reset();
  EXPECT_EQ(running.finish().code(), Code::kUnavailable);
}

TEST(EngineThreads, UnaryCallsAreAnsweredFromAnyThread) {
  const Clock clock;
  const auto engine = make_engine(clock, 4);
  std::promise<Result<SessionInfo>> created;
  engine->create_session({}, "", [&](Result<SessionInfo> r) { created.set_value(std::move(r)); });
  const auto info = created.get_future().get();
  ASSERT_TRUE(info.ok());
  std::promise<Result<SessionPage>> listed;
  engine->list_sessions("", "", 10, [&](Result<SessionPage> r) { listed.set_value(std::move(r)); });
  const auto page = listed.get_future().get();
  ASSERT_EQ(page->sessions.size(), 1U);
  EXPECT_EQ(page->sessions[0].key.id, info->key.id);
}

}  // namespace
}  // namespace runnel
