#include "server/http/head_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace runnel {
namespace {

using ::testing::HasSubstr;

// The head of a request whose header names are in lower case.
class Head {
 public:
  Head(std::string method, std::string target, std::multimap<std::string, std::string> headers)
      : method_(std::move(method)), target_(std::move(target)), headers_(std::move(headers)) {}

  RequestHead view(unsigned version = 11) const {
    return {.version = version,
            .method = method_,
            .target = target_,
            .count = [this](std::string_view name) { return headers_.count(lower(name)); },
            .header = [this](std::string_view name) -> std::string_view {
              const auto found = headers_.find(lower(name));
              return found == headers_.end() ? std::string_view() : found->second;
            }};
  }

 private:
  static std::string lower(std::string_view name) {
    std::string text(name);
    for (char& c : text) c = static_cast<char>(std::tolower(c));
    return text;
  }

  const std::string method_, target_;
  const std::multimap<std::string, std::string> headers_;
};

int status_of(std::multimap<std::string, std::string> headers, unsigned version = 11) {
  const Head head("GET", "/", std::move(headers));
  const auto fault = check_head(head.view(version));
  return fault ? fault->refusal.status : 200;
}

TEST(HeadRules, RepeatedSingleHeadersAreRefused) {
  EXPECT_EQ(status_of({{"host", "a"}}), 200);
  EXPECT_EQ(status_of({}), 400);
  EXPECT_EQ(status_of({}, 10), 200);
  EXPECT_EQ(status_of({{"host", "a"}, {"host", "a"}}), 400);
  for (const char* once : {"authorization", "content-type", "origin"}) {
    EXPECT_EQ(status_of({{"host", "a"}, {once, "x"}}), 200) << once;
    EXPECT_EQ(status_of({{"host", "a"}, {once, "x"}, {once, "x"}}), 400) << once;
  }
}

TEST(HeadRules, ReportsThatTheEndOfABodyIsUnclear) {
  const std::multimap<std::string, std::string> unclear[] = {
      {{"transfer-encoding", "gzip"}},
      {{"transfer-encoding", "chunked"}, {"transfer-encoding", "chunked"}},
      {{"content-length", "3"}, {"content-length", "3"}},
      {{"content-length", "3, 3"}}};
  for (auto headers : unclear) {
    headers.emplace("host", "a");
    const Head head("POST", "/", headers);
    const auto fault = check_head(head.view());
    ASSERT_TRUE(fault.has_value());
    EXPECT_TRUE(fault->hides_end);
  }
  EXPECT_EQ(status_of({{"host", "a"}, {"transfer-encoding", "Chunked"}}), 200);
  EXPECT_EQ(status_of({{"transfer-encoding", "chunked"}}, 10), 501);
}

TEST(HeadRules, AStarMatchesOnePartOfAPath) {
  EXPECT_EQ(match_path("/a", "/a"), "");
  EXPECT_EQ(match_path("/a", "/ab"), std::nullopt);
  EXPECT_EQ(match_path("/a/*", "/a/b"), "b");
  EXPECT_EQ(match_path("/a/*", "/a/"), std::nullopt);
  EXPECT_EQ(match_path("/a/*", "/a/b/c"), std::nullopt);
  EXPECT_EQ(match_path("/a/*/state", "/a/b/state"), "b");
}

TEST(HeadRules, ARouteIsFoundByPathAndMethod) {
  const std::vector<HttpRoute> routes = {
      {"GET", "/a", {}}, {"POST", "/a", {}}, {"OPTIONS", "**", {}}};
  const auto find = [&](const char* method, const char* target) {
    const Head head(method, target, {});
    return find_route(routes, head.view());
  };
  EXPECT_EQ(find("GET", "/a?b=c").route, &routes[0]);
  EXPECT_EQ(find("HEAD", "/a").route, &routes[0]);
  EXPECT_EQ(find("POST", "/a").route, &routes[1]);
  EXPECT_EQ(find("POST", "/a").allow, "GET, HEAD, POST, OPTIONS");
  const RouteMatch put = find("PUT", "/a");
  EXPECT_EQ(put.route, nullptr);
  EXPECT_EQ(put.refusal.status, 405);
  EXPECT_EQ(put.allow, "GET, HEAD, POST, OPTIONS");
  const RouteMatch elsewhere = find("GET", "/b");
  EXPECT_EQ(elsewhere.route, nullptr);
  EXPECT_EQ(elsewhere.refusal.status, 404);
  EXPECT_EQ(elsewhere.allow, "");
  EXPECT_THAT(elsewhere.refusal.message, HasSubstr("nothing is served"));
}

TEST(HeadRules, ARouteForEveryPathIsTriedLast) {
  const std::vector<HttpRoute> routes = {
      {"OPTIONS", "**", {}}, {"GET", "/a", {}}, {"OPTIONS", "/a", {}}};
  const auto find = [&](const char* method, const char* target) {
    const Head head(method, target, {});
    return find_route(routes, head.view());
  };
  EXPECT_EQ(find("OPTIONS", "/a").route, &routes[2]);
  EXPECT_EQ(find("OPTIONS", "/b").route, &routes[0]);
  EXPECT_EQ(find("OPTIONS", "/b").allow, "OPTIONS");
  EXPECT_EQ(find("OPTIONS", "*").route, &routes[0]);
  EXPECT_EQ(find("GET", "/b").refusal.status, 404);
}

}  // namespace
}  // namespace runnel
