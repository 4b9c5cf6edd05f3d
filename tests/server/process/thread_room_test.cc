#include "server/process/thread_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <latch>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

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

// How many arenas malloc has made. It never removes one.
size_t count_arenas() {
  char* text = nullptr;
  size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  malloc_info(0, stream);
  fclose(stream);
  const std::string_view all(text, size);
  size_t arenas = 0;
  for (size_t at = 0; (at = all.find("<heap nr=", at)) != all.npos; ++at) ++arenas;
  free(text);
  return arenas;
}

TEST(ThreadRoom, AddressesAreCheckedWhileEachThreadHasAnArena) {
  constexpr int kThreads = 24;
  ASSERT_TRUE(check_threads(kThreads, 1 << 20).ok());
  const size_t arenas = count_arenas();
  std::latch allocated(kThreads);
  std::vector<std::jthread> threads;
  while (std::ssize(threads) < kThreads) {
    threads.emplace_back([&] {
      ::operator delete(::operator new(1));
      allocated.arrive_and_wait();
    });
  }
  threads.clear();
  EXPECT_EQ(count_arenas(), arenas);
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
