// Servers share a store whose operations fail at random, or succeed but report a failure. Servers
// restart, sessions are evicted and loaded, logs are replayed, and calls are fenced off. A client
// repeats each call until it is heard. Its values must be those of a server without a store.
//
// A seed determines the calls and faults. Thread timing determines which operation gets which
// fault: RUNNEL_STORE_SEED=17 test_server --gtest_filter='StoreSimulation.*'

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "server/host/kept_sessions.h"
#include "storage/memory_store.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

constexpr int kServers = 2;
constexpr int kSlots = 4;
constexpr int kSessions = 10;
constexpr int kSteps = 120;
constexpr int kMostTries = 200;  // of a call; each try fails with a probability below 2/3

class StoreSimulation {
 public:
  explicit StoreSimulation(uint64_t seed) : random_(seed), faults_(seed + 1) {}

  void run() {
    for (int i = 0; i < kServers; ++i) start(i);
    for (int i = 0; i < kSessions; ++i) create(name(i));
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) act(step);
    fails_ = false;
    for (auto& server : servers_) {
      EXPECT_EQ(listed(*server), kSessions);
      for (int i = 0; i < kSessions; ++i) EXPECT_EQ(position(*server, name(i)), positions_[i]);
    }
    for (int i = 0; i < kSessions; ++i) remove(name(i));
    for (auto& server : servers_) EXPECT_EQ(listed(*server), 0);
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  TestServer& any_server() { return *servers_[static_cast<size_t>(below(kServers))]; }
  static std::string name(int session) { return "s" + std::to_string(session); }

  static ServedModel model(int slots) {
    ModelLimits limits = kTestLimits;
    limits.slots = slots;
    return served_bundle(small_symbol_spec(), 1, {}, limits);
  }

  // Fails `percent` of all operations.
  Status fault(int percent) {
    std::lock_guard lock(mutex_);
    if (!fails_ || static_cast<int>(faults_() % 100) >= percent) return {};
    const Code code = faults_() % 2 == 0 ? Code::kUnavailable : Code::kResourceExhausted;
    return {code, "the store has a fault"};
  }

  // Starts a server, or replaces it with a new one.
  void start(int index) {
    std::unique_ptr<TestServer>& server = servers_[static_cast<size_t>(index)];
    server = nullptr;
    ServerOptions options;
    const auto memory = std::make_shared<MemoryStore>(shelf_, StoreSettings().times, clock_);
    options.host.storage.store = std::make_shared<FaultyStore>(
        memory, [this](const std::string&) { return fault(8); },
        [this](const std::string&) { return fault(4); });
    server = std::make_unique<TestServer>(model(kSlots), options, clock_);
  }

  void act(int step) {
    const int choice = below(20);
    if (choice == 0) return start(below(kServers));
    if (choice <= 3) {
      clock_.advance(std::chrono::seconds(1 + below(3)));  // states then replace logs
      for (auto& server : servers_) server->server.tend();
      return;
    }
    call(step, below(kSessions), choice > 5);
  }

  // Makes a call on a session until it is heard.
  void call(int step, int session, bool keeps) {
    const std::vector<int32_t> prompt = {1 + below(3), 1};
    v1::GenerateRequest request = generate_request(prompt, 1 + below(20), random_());
    request.mutable_origin()->set_session(name(session));
    request.set_keep(keeps);
    const Generated expected = untouched_.generate(request);
    ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
    int64_t& position = positions_[static_cast<size_t>(session)];
    request.set_expected_position(position);
    if (keeps) request.set_request_id("call-" + std::to_string(step));
    Generated heard;
    heard.status = until_done([&](TestServer& server) {
      heard = server.generate(request);
      return heard.status;
    });
    ASSERT_TRUE(heard.status.ok()) << "step " << step << ": " << heard.status.error_message();
    EXPECT_EQ(heard.values, expected.values) << "step " << step;
    if (keeps) position = expected.finished.at(0).usage().position();
  }

  // Repeats a call on random servers until it is not refused. If a call was cut off, its lease must
  // expire first.
  template <typename Make>
  grpc::Status until_done(const Make& make) {
    grpc::Status status;
    for (int i = 0; i < kMostTries; ++i) {
      status = make(any_server());
      const auto code = status.error_code();
      const bool is_refused = code == grpc::StatusCode::UNAVAILABLE ||
                              code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                              code == grpc::StatusCode::ABORTED;
      if (!is_refused) return status;
      if (code == grpc::StatusCode::ABORTED) clock_.advance(std::chrono::seconds(5));
    }
    return status;
  }

  void create(const std::string& id) {
    ASSERT_TRUE(untouched_.create(id).ok());
    const auto code =
        until_done([&](TestServer& server) { return server.create(id); }).error_code();
    // An earlier try may have made the session.
    EXPECT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::ALREADY_EXISTS) << code;
  }

  void remove(const std::string& id) {
    EXPECT_TRUE(until_done([&](TestServer& server) { return server.remove(id); }).ok());
  }

  static int listed(TestServer& server) {
    grpc::ClientContext context;
    v1::ListSessionsResponse page;
    EXPECT_TRUE(server.sessions->ListSessions(&context, {}, &page).ok());
    return page.sessions_size();
  }

  static int64_t position(TestServer& server, const std::string& id) {
    v1::Session session;
    EXPECT_TRUE(server.get(id, &session).ok());
    return session.position();
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::mt19937_64 faults_;  // used with mutex_ held
  std::atomic<bool> fails_{true};
  Clock clock_{TimePoint(std::chrono::hours(1))};
  const std::shared_ptr<MemoryShelf> shelf_ = std::make_shared<MemoryShelf>();
  std::array<int64_t, kSessions> positions_{};  // of the sessions, as the client knows them
  TestServer untouched_{model(kSessions + 1)};  // one more slot for a call that keeps nothing
  std::array<std::unique_ptr<TestServer>, kServers> servers_;
};

TEST(StoreSimulation, EveryCallFinallyReturnsItsValues) {
  const char* const one = std::getenv("RUNNEL_STORE_SEED");
  const uint64_t first = one == nullptr ? 1 : std::strtoull(one, nullptr, 10);
  const uint64_t count = one == nullptr ? 2 : 1;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    StoreSimulation(seed).run();
    ASSERT_FALSE(HasFailure()) << "RUNNEL_STORE_SEED=" << seed;
  }
}

}  // namespace
}  // namespace runnel
