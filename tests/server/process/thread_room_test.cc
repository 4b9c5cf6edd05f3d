#include "server/process/thread_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "server/host/kept_sessions.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

TEST(ThreadRoom, EachModelAndEachComputingThreadCounts) {
  ServerConfig config;
  config.threads = 3;
  config.models = {{}};
  const int64_t one = threads_for(config);
  config.threads = 5;
  EXPECT_EQ(threads_for(config), one + 2);
  config.models = {{}, {}};
  EXPECT_GT(threads_for(config), one + 2);
  EXPECT_TRUE(check_threads(threads_for(config), 1 << 20).ok());
  const int64_t without = threads_for(config);
  config.storage_url = "memory";
  EXPECT_EQ(threads_for(config), without + KeptSessions::kAllThreads);
}

TEST(ThreadRoom, MoreAddressSpaceThanAvailableIsRefused) {
  EXPECT_TRUE(check_addresses(-1).ok());
  EXPECT_TRUE(check_addresses(1 << 20).ok());
  const Status refused = check_addresses(int64_t{1} << 60);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("ulimit -v"));
}

}  // namespace
}  // namespace runnel
