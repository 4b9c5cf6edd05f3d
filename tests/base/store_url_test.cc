#include "base/store_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StoreUrl, NamesAStoreOfEachKind) {
  EXPECT_EQ(parse_store_url("memory")->kind, StoreKind::kMemory);
  EXPECT_EQ(parse_store_url("dir:a/b")->path, "a/b");
  const auto socket = parse_store_url("unix:/run/redis.sock");
  EXPECT_EQ(socket->kind, StoreKind::kRedis);
  EXPECT_EQ(socket->path, "/run/redis.sock");
  const auto plain = parse_store_url("redis://localhost");
  EXPECT_EQ(plain->kind, StoreKind::kRedis);
  EXPECT_EQ(plain->host + " " + plain->port + " " + plain->user, "localhost 6379 ");
  EXPECT_FALSE(plain->tls);
  const auto whole = parse_store_url("rediss://ada@[::1]:7000/3");
  EXPECT_EQ(whole->host + " " + whole->port + " " + whole->user, "::1 7000 ada");
  EXPECT_EQ(whole->database, 3);
  EXPECT_TRUE(whole->tls);
  EXPECT_EQ(parse_store_url("redis://a.example:1/")->database, 0);
}

TEST(StoreUrl, RefusesUrlsOfAnyOtherForm) {
  for (const std::string url : {"",
                                "dir:",
                                "unix:",
                                "memory:",
                                "/a",
                                "redis:",
                                "redis://",
                                "redis://:6379",
                                "redis://a:",
                                "redis://a:0",
                                "redis://a:65536",
                                "redis://a:6379x",
                                "redis://a/-1",
                                "redis://a/1/2",
                                "redis://a?b",
                                "redis://@a",
                                "redis://[::1",
                                "redis://[::1]6379",
                                "redis://a b",
                                "Redis://a",
                                "redis://a\n"}) {
    const Status status = parse_store_url(url).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << url;
    EXPECT_THAT(status.message(), HasSubstr("it must be dir:PATH")) << url;
  }
  EXPECT_FALSE(parse_store_url("unix:" + std::string(108, 'a')).ok()) << "no socket has it";
  EXPECT_TRUE(parse_store_url("unix:" + std::string(107, 'a')).ok());
  for (const char* const url : {"redis://ada:secret@a", "redis://:secret@a", "Redis://ada:secret@a",
                                "redis:/ada:secret@a", "redis://ada:se/c@secret@a"}) {
    const std::string message = parse_store_url(url).status().message();
    EXPECT_THAT(message, HasSubstr("A password must be in the file storage.password_file")) << url;
    EXPECT_THAT(message, Not(HasSubstr("secret"))) << url;
  }
  EXPECT_EQ(parse_store_url("dir:/a:b@c")->path, "/a:b@c");
}

}  // namespace
}  // namespace runnel
