// Many threads do every operation on sessions at once while the engine's thread runs, for the
// thread sanitizer. A session that only one thread uses has the values that it would have alone.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "engine/rewinds.h"
#include "tests/engine/fake_model.h"

namespace runnel {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 60;
constexpr int64_t kStateBytes = 3 << 10;

EngineOptions options() {
  EngineOptions options;
  options.rewind_values = 24;
  options.rewind_every = 5;
  return options;
}

ModelLimits limits() {
  const auto each = static_cast<int>(1 + snapshots_of(options(), 2));
  return {.slots = 40 * each, .rows = 12, .values = 24, .steps = 2};
}

// Waits for the only answer of a call.
template <typename T>
class Answer {
 public:
  auto take() {
    return [promise = promise_](T result) { promise->set_value(std::move(result)); };
  }
  T wait() {
    auto future = promise_->get_future();
    EXPECT_EQ(future.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    return future.get();
  }

 private:
  std::shared_ptr<std::promise<T>> promise_ = std::make_shared<std::promise<T>>();
};

using Moved = Answer<Result<std::vector<SessionInfo>>>;

struct Sampled {
  Status end;
  std::vector<int32_t> values;
};

// A caller with its own thread.
class Racer {
 public:
  Racer(Engine& engine, int number) : engine_(engine), number_(number), random_(number) {}

  void run() {
    const std::string mine = "own-" + std::to_string(number_);
    Answer<Result<SessionInfo>> created;
    engine_.create_session({}, mine, created.take());
    ASSERT_TRUE(created.wait().ok());
    for (int round = 0; round < kRounds; ++round) {
      disturb();
      go_on(mine);
      go_back(mine);
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  // A session that all threads use.
  std::string shared() { return std::string(1, static_cast<char>('a' + below(3))); }

  void disturb() {
    switch (below(6)) {
      case 0: {
        Answer<Result<SessionInfo>> created;
        engine_.create_session({}, shared(), created.take());
        return expect(created.wait().status());
      }
      case 1: {
        Answer<Status> removed;
        engine_.delete_session({"", shared()}, removed.take());
        return expect(removed.wait());
      }
      case 2: {
        Moved forked;
        engine_.fork_session({}, shared(), {shared()}, forked.take());
        return expect(forked.wait().status());
      }
      case 3:
        return carry(shared());
      case 4: {
        Moved back;
        engine_.rewind_session({}, shared(), below(30), back.take());
        return expect(back.wait().status());
      }
      default: {
        GenerateRequest request = request_of({number_}, 1 + below(30));
        request.session = shared();
        if (below(2) == 0) request.request_id = "r-" + std::to_string(below(3));
        expect(sample(request, below(3) == 0).end);
      }
    }
  }

  void carry(const std::string& from) {
    const auto image = std::make_shared<StateImage>();
    Moved out;
    engine_.export_session({"", from}, image, out.take());
    const Status status = out.wait().status();
    expect(status);
    if (!status.ok()) return;
    Moved in;
    engine_.import_session({}, shared(), image, in.take());
    expect(in.wait().status());
  }

  void go_on(const std::string& mine) {
    GenerateRequest request = request_of({number_, 1 + below(90)}, 1 + below(12));
    request.session = mine;
    request.seed = random_();
    const Sampled sampled = sample(request, false);
    ASSERT_TRUE(sampled.end.ok()) << sampled.end.to_string();
    known_.insert(known_.end(), request.prompt.begin(), request.prompt.end());
    EXPECT_EQ(sampled.values, FakeModel::expected(fake_spec(), known_, *request.seed, 0,
                                                  static_cast<int>(*request.max_values)));
    known_.insert(known_.end(), sampled.values.begin(), sampled.values.end());
  }

  void go_back(const std::string& mine) {
    const int64_t position = std::max<int64_t>(0, std::ssize(known_) - below(20));
    Moved back;
    engine_.rewind_session({}, mine, position, back.take());
    const auto stands = back.wait();
    if (stands.ok()) {
      known_.resize(static_cast<size_t>(position));
    } else {
      EXPECT_EQ(stands.status().code(), Code::kOutOfRange) << stands.status().to_string();
    }
  }

  static GenerateRequest request_of(std::vector<int32_t> prompt, int64_t count) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    request.max_values = count;
    request.seed = 1;
    return request;
  }

  // Reads a call to its end, or cancels it at once.
  Sampled sample(const GenerateRequest& request, bool cancels) {
    const auto woken = std::make_shared<std::atomic<int>>(0);
    const auto stream =
        std::make_shared<TokenStream>(request.delivery, engine_.stream_room(1), 0, [woken] {
          woken->fetch_add(1);
          woken->notify_one();
        });
    if (Status s = engine_.generate(request, stream); !s.ok()) return {s, {}};
    if (cancels) stream->cancel();
    Sampled sampled;
    StreamGroup group;
    while (!group.end) {
      const int seen = *woken;
      if (!stream->take(group)) {
        woken->wait(seen);
        continue;
      }
      for (const StreamValue& value : group.values) sampled.values.push_back(value.value);
    }
    sampled.end = *group.end;
    return sampled;
  }

  // Checks the status of a call on a shared session.
  static void expect(const Status& status) {
    const Code code = status.code();
    EXPECT_TRUE(status.ok() || code == Code::kNotFound || code == Code::kAborted ||
                code == Code::kAlreadyExists || code == Code::kOutOfRange ||
                code == Code::kCancelled || code == Code::kInvalidArgument)
        << status.to_string();
  }

  Engine& engine_;
  const int number_;
  std::mt19937 random_;
  std::vector<int32_t> known_;  // of the thread's own session
};

TEST(Race, ManyThreadsDoNotDisturbEachOthersSessions) {
  const Clock clock;
  Engine engine(std::make_unique<FakeModel>(fake_spec(), limits(), kStateBytes), options(), clock);
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&engine, number] { Racer(engine, number).run(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine.failure().ok());
}

}  // namespace
}  // namespace runnel
