#include "storage/host_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>

#include "storage/redis_client.h"
#include "tests/base/eventually.h"

namespace runnel {
namespace {

using std::chrono::steady_clock;
using ::testing::EndsWith;
using ::testing::HasSubstr;

steady_clock::time_point in_a_minute() { return steady_clock::now() + std::chrono::minutes(1); }

// Resolves every name to this machine.
int find_local(const char* /*host*/, const char* port, const addrinfo* hints, addrinfo** found) {
  return getaddrinfo("127.0.0.1", port, hints, found);
}

TEST(HostLookup, NumericAddressesNeedNoLookup) {
  std::atomic<int> lookups{0};
  HostLookup hosts([&](const char*, const char*, const addrinfo*, addrinfo**) {
    ++lookups;
    return EAI_FAIL;
  });
  for (const char* const address : {"127.0.0.1", "::1"}) {
    const auto found = hosts.find(address, "6379", in_a_minute());
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_NE(*found, nullptr);
  }
  EXPECT_EQ(lookups, 0);
  EXPECT_EQ(hosts.find("redis.example", "6379", in_a_minute()).status().code(), Code::kUnavailable);
  EXPECT_EQ(lookups, 1);
}

TEST(HostLookup, FindsANameAgainEachTime) {
  std::atomic<int> lookups{0};
  std::string asked;
  HostLookup hosts(
      [&](const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
        ++lookups;
        asked = std::string(host) + ":" + port;
        return find_local(host, port, hints, found);
      });
  for (int i = 1; i <= 3; ++i) {
    const auto found = hosts.find("redis.example", "7", in_a_minute());
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ((*found)->ai_family, AF_INET);
    EXPECT_EQ(lookups, i) << "the name may have another address by now";
  }
  EXPECT_EQ(asked, "redis.example:7");
}

TEST(HostLookup, ErrorsUseTheWordsOfTheSystem) {
  HostLookup hosts(
      [](const char*, const char*, const addrinfo*, addrinfo**) { return EAI_NONAME; });
  const Status status = hosts.find("redis.example", "6379", in_a_minute()).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), gai_strerror(EAI_NONAME));
}

// A lookup's thread may outlive the lookup, so it shares this data with the test.
struct Hanging {
  std::latch may_end{1};
  std::atomic<int> lookups{0};
};

HostLookup::Lookup hang(const std::shared_ptr<Hanging>& shared) {
  return [shared](const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
    ++shared->lookups;
    shared->may_end.wait();
    return find_local(host, port, hints, found);
  };
}

TEST(HostLookup, AHangingLookupTimesOutAndIsNotStartedTwice) {
  const auto shared = std::make_shared<Hanging>();
  HostLookup hosts(hang(shared));
  for (int i = 0; i < 3; ++i) {
    const auto until = steady_clock::now() + std::chrono::milliseconds(20);
    const Status status = hosts.find("redis.example", "6379", until).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("takes too long"));
  }
  EXPECT_TRUE(eventually([&] { return shared->lookups == 1; }));
  shared->may_end.count_down();
  EXPECT_TRUE(hosts.find("redis.example", "6379", in_a_minute()).ok());
  EXPECT_LE(shared->lookups, 2);
}

TEST(HostLookup, ARedisWhoseNameIsNotFoundInTimeIsUnavailable) {
  const auto shared = std::make_shared<Hanging>();
  RedisOptions options = {.url = {.kind = StoreKind::kRedis, .host = "redis.example", .port = "7"},
                          .timeout_ms = 20,
                          .hosts = std::make_shared<HostLookup>(hang(shared))};
  const auto before = steady_clock::now();
  const Status status = RedisClient::open(options).status();
  EXPECT_LT(steady_clock::now() - before, std::chrono::minutes(1));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("Redis at redis.example:7 is not found: "));
  EXPECT_THAT(status.message(), EndsWith("takes too long"));
  shared->may_end.count_down();
}

}  // namespace
}  // namespace runnel
