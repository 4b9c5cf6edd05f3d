// A store that answers after the call that waits for it has ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "storage/memory_store.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

constexpr auto kUnavailable = grpc::StatusCode::UNAVAILABLE;

v1::GenerateRequest call(bool keep) {
  v1::GenerateRequest request = generate_request({1, 2}, 3, 7);
  request.mutable_origin()->set_session("a");
  request.set_keep(keep);
  return request;
}

TEST(LateStore, NoCallBeginsBeforeAnEarlierOneHasBegunLate) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  std::latch answers(1);
  std::atomic<int> begins{0};
  ServerOptions options;
  options.host.storage.store = std::make_shared<FaultyStore>(
      std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(), StoreSettings().times, clock),
      [&](const std::string& operation) {
        if (operation == "begin" && ++begins == 1) answers.wait();
        return Status();
      });
  TestServer test(served_bundle(small_symbol_spec(), 1), options, clock);
  ASSERT_TRUE(test.create("a").ok());
  std::jthread first(
      [&] { EXPECT_EQ(test.generate(call(true)).status.error_code(), kUnavailable); });
  EXPECT_TRUE(eventually([&] { return begins == 1; }));
  clock.advance(std::chrono::seconds(1));
  test.server.tend();
  first.join();
  for (const bool keep : {true, false}) {
    const grpc::Status status = test.generate(call(keep)).status;
    EXPECT_EQ(status.error_code(), kUnavailable) << keep;
    EXPECT_THAT(status.error_message(), HasSubstr("answered an earlier call on session 'a'"));
  }
  EXPECT_EQ(begins, 1);
  answers.count_down();
  EXPECT_TRUE(eventually([&] { return test.generate(call(true)).status.ok(); }));
  v1::Session session;
  EXPECT_TRUE(test.get("a", &session).ok());
  EXPECT_EQ(session.position(), 5) << "one call has run";
}

}  // namespace
}  // namespace runnel
