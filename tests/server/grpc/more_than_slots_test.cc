// A store has more sessions than the server has slots.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/host/kept_sessions.h"
#include "server/host/save_file.h"
#include "storage/memory_store.h"
#include "storage/record_key.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

constexpr int kSlots = 4;
constexpr int kSessions = 40;

class MoreThanSlots : public ::testing::Test {
 protected:
  static ServedModel model(int slots) {
    ModelLimits limits = kTestLimits;
    limits.slots = slots;
    return served_bundle(small_symbol_spec(), 1, {}, limits);
  }
  // Options with a store that counts loaded states.
  ServerOptions stored() {
    ServerOptions options;
    options.host.storage.log_bytes = 0;  // each call saves a state
    const auto memory = std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(),
                                                      StoreSettings().times, real_clock());
    options.host.storage.store =
        std::make_shared<FaultyStore>(memory, [this](const std::string& operation) {
          loads_ += operation == "load" ? 1 : 0;
          return Status();
        });
    return options;
  }
  static v1::GenerateRequest call(const std::string& session, bool keep = true,
                                  int64_t values = 3) {
    v1::GenerateRequest request = generate_request({1, 2}, values, 7);
    request.mutable_origin()->set_session(session);
    request.set_keep(keep);
    return request;
  }
  // A call that has sent its first event. The destructor cancels it.
  struct OpenCall {
    OpenCall(TestServer& test, const v1::GenerateRequest& request)
        : reader(test.inference->Generate(&context, request)) {
      EXPECT_TRUE(reader->Read(&first));
    }
    ~OpenCall() {
      context.TryCancel();
      if (!is_over) static_cast<void>(finish());
    }
    grpc::Status finish() {
      is_over = true;
      for (v1::GenerateResponse response; reader->Read(&response);) {
      }
      return reader->Finish();
    }

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
    v1::GenerateResponse first;
    bool is_over = false;
  };

  static std::string name(int session) { return "s" + std::to_string(session); }

  std::atomic<int> loads_{0};
  TestServer test_{model(kSlots), stored()};
};

TEST_F(MoreThanSlots, AllSessionsContinueWithTheSameBits) {
  TestServer untouched(model(kSessions + 1));
  for (int i = 0; i < kSessions; ++i) {
    ASSERT_TRUE(test_.create(name(i)).ok()) << i;
    ASSERT_TRUE(untouched.create(name(i)).ok());
  }
  for (const int stride : {1, 3, 7}) {  // each is another order; in the last, calls only read
    for (int i = 0; i < kSessions; ++i) {
      const auto request = call(name(stride * i % kSessions), stride < 7);
      const Generated found = test_.generate(request);
      ASSERT_TRUE(found.status.ok()) << found.status.error_message();
      const Generated there = untouched.generate(request);
      EXPECT_EQ(found.started.position(), there.started.position());
      EXPECT_EQ(found.log_probs, there.log_probs) << i;
    }
  }
  EXPECT_GT(loads_, kSessions);
  test_.expect_free(kSlots);
  for (int i = 0; i < kSessions; ++i) {
    v1::Session here;
    v1::Session there;
    EXPECT_TRUE(test_.get(name(i), &here).ok());
    EXPECT_TRUE(untouched.get(name(i), &there).ok());
    EXPECT_EQ(here.position(), there.position());
    EXPECT_TRUE(test_.remove(name(i)).ok());
    EXPECT_EQ(test_.generate(call(name(i), i % 2 == 0)).status.error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(MoreThanSlots, TheSessionThatIsIdleLongestIsEvicted) {
  for (const char* const id : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(test_.create(id).ok());
    ASSERT_TRUE(test_.generate(call(id)).status.ok());
  }
  ASSERT_TRUE(test_.generate(call("a")).status.ok());
  ASSERT_TRUE(test_.create("e").ok());
  for (const char* const id : {"a", "c", "d"}) EXPECT_TRUE(test_.generate(call(id)).status.ok());
  EXPECT_EQ(loads_, 0);
  EXPECT_TRUE(test_.generate(call("b")).status.ok());
  EXPECT_EQ(loads_, 1);
}

// Another server has made the call, and its answer was not kept.
TEST_F(MoreThanSlots, ARefusedRetryLeavesNoStaleState) {
  ServerOptions options;
  options.host.storage.answer_bytes = 0;
  const auto shelf = std::make_shared<MemoryShelf>();
  const auto server = [&] {
    options.host.storage.store =
        std::make_shared<MemoryStore>(shelf, StoreSettings().times, real_clock());
    return std::make_unique<TestServer>(model(kSlots), options);
  };
  const auto one = server(), two = server();
  ASSERT_TRUE(one->create("a").ok());
  ASSERT_TRUE(one->generate(call("a")).status.ok());
  v1::GenerateRequest request = call("a");
  request.set_request_id("b");
  ASSERT_TRUE(two->generate(request).status.ok());
  EXPECT_EQ(one->generate(request).status.error_code(), grpc::StatusCode::ABORTED);
  one->expect_free(kSlots);
}

TEST_F(MoreThanSlots, ASessionWithACallKeepsItsSlot) {
  for (int i = 0; i <= kSlots; ++i) ASSERT_TRUE(test_.create(name(i)).ok());
  std::vector<std::unique_ptr<OpenCall>> calls;
  for (int i = 0; i < kSlots; ++i) {
    calls.push_back(std::make_unique<OpenCall>(test_, call(name(i), true, 1 << 20)));
    EXPECT_TRUE(calls.back()->first.has_started());
  }
  test_.expect_free(0);
  const Generated refused = test_.generate(call(name(kSlots)));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(test_.generate(generate_request({1}, 1)).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  calls.clear();
  test_.expect_free(kSlots);  // once the sessions are saved
  EXPECT_TRUE(test_.generate(call(name(kSlots))).status.ok());
}

TEST_F(MoreThanSlots, AReadingCallIsToBeRetriedIfItsSessionIsEvictedWhileItWaits) {
  ASSERT_TRUE(test_.create("a").ok());
  ASSERT_TRUE(test_.generate(call("a")).status.ok());
  std::vector<std::unique_ptr<OpenCall>> others;
  const auto add_other = [&] {
    others.push_back(std::make_unique<OpenCall>(test_, generate_request({1}, 1 << 20)));
    EXPECT_TRUE(others.back()->first.has_started());
  };
  for (int i = 1; i < kSlots; ++i) add_other();
  v1::GenerateRequest reads = call("a", false);
  reads.mutable_max_queue_time()->set_seconds(600);
  OpenCall waits(test_, reads);
  EXPECT_TRUE(waits.first.has_queued()) << "the slot of its session is not free for it";
  add_other();
  others.pop_back();
  const grpc::Status status = waits.finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("made room for another one"));
  EXPECT_EQ(waits.context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
  others.clear();
  test_.expect_free(kSlots);
  EXPECT_TRUE(test_.generate(reads).status.ok());
}

TEST_F(MoreThanSlots, OfTooManyKnownCopiesOneAtATimeIsForgotten) {
  constexpr int kMost = 1 << 16;
  constexpr int kNoted = kMost + 100;
  KeptSessions& kept = *test_.server.context().kept;
  const auto key = [](int i) { return record_key("model", "", std::to_string(i)); };
  const auto known = [&] {
    int count = 0;
    for (int i = 0; i < kNoted; ++i) count += kept.copy_of(key(i)).saved == i + 1 ? 1 : 0;
    return count;
  };
  for (int i = 0; i < kNoted; ++i) kept.note_copy(key(i), {.saved = i + 1});
  EXPECT_EQ(known(), kMost);
  kept.note_copy(key(kNoted - 1), {.saved = kNoted});
  EXPECT_EQ(known(), kMost) << "one that is known already";
}

TEST_F(MoreThanSlots, TheMemoryOfAStateIsCountedUntilAHangingStoreHasTakenIt) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::latch answers(1);
  std::atomic<int> hanging{0};
  const auto memory =
      std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(), StoreSettings().times, clock);
  ServerOptions options;
  options.host.storage.log_bytes = 0;
  options.host.storage.store =
      std::make_shared<FaultyStore>(memory, [&](const std::string& operation) {
        if (operation != "end") return Status();
        ++hanging;
        answers.wait();
        return Status();
      });
  TestServer test(model(kSlots), options, clock);
  const auto holds = [&](int64_t bytes) {
    return eventually([&] { return test.server.context().memory.held() == bytes; });
  };
  ASSERT_TRUE(test.create("a").ok());
  std::jthread late([&] {
    EXPECT_EQ(test.generate(call("a")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  });
  EXPECT_TRUE(eventually([&] { return hanging == 1; }));
  clock.advance(std::chrono::seconds(1));
  test.server.tend();
  late.join();
  EXPECT_TRUE(holds(bytes_to_save(*(*test.server.models().find({}, ""))->engine)));
  answers.count_down();
  EXPECT_TRUE(holds(0));
}

}  // namespace
}  // namespace runnel
