// The page's files, over a real socket.

#include "server/web/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <regex>
#include <sstream>
#include <string>

#include "server/web/page_files.h"
#include "tests/server/http/http_client.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kMostBytes = 120 << 10;

class PageTest : public testing::Test {
 protected:
  PageTest() {
    EXPECT_TRUE(server_.start(listen_on("127.0.0.1:0").value()).ok());
    client_.emplace(server_.address());
  }

  HttpResponse get(std::string_view path, const std::string& host = "localhost") {
    client_->send("GET " + std::string(path) + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client_->response();
  }

  std::ostringstream log_text_;
  EventLog log_{"info", false, log_text_};
  HttpServer server_{{.connections = {.in_all = 8}}, page_routes(Gate("", "")), log_};
  std::optional<HttpClient> client_;
};

TEST_F(PageTest, ABrowserGetsItUnderAStrictPolicy) {
  for (const PageFile& file : page_files()) {
    const HttpResponse answer = get(file.path);
    EXPECT_EQ(answer.status, 200) << file.path;
    EXPECT_EQ(answer.body, file.content) << file.path;
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: " + std::string(file.content_type)));
    EXPECT_THAT(answer.head, HasSubstr("Content-Security-Policy: default-src 'none'; "
                                       "script-src 'self'; style-src 'self'; img-src 'self'; "
                                       "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                                       "frame-ancestors 'none'; require-trusted-types-for "
                                       "'script'; trusted-types 'none'\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("Referrer-Policy: no-referrer\r\n"));
  }
  EXPECT_THAT(get("/").head, HasSubstr("text/html; charset=utf-8"));
  EXPECT_EQ(get("/page/none.js").status, 404);
  EXPECT_EQ(get("/page/index.html").status, 404);
}

TEST_F(PageTest, AForeignHostIsRefused) { EXPECT_EQ(get("/", "evil.org").status, 403); }

TEST(PageFiles, AreSmallInTotal) {
  size_t bytes = 0;
  for (const PageFile& file : page_files()) {
    bytes += file.content.size();
    EXPECT_LE(std::ssize(file.content), largest_page_answer());
  }
  EXPECT_LT(bytes, kMostBytes);
  EXPECT_GT(page_files().size(), 3U);
}

TEST(PageFiles, UseNoOtherOriginAndNoInlineCode) {
  for (const PageFile& file : page_files()) {
    std::string text(file.content);
    for (const std::string name : {"http://www.w3.org/2000/svg"}) {  // a namespace, never fetched
      for (size_t at = 0; (at = text.find(name)) != std::string::npos;) text.erase(at, name.size());
    }
    for (const char* const no :
         {"http:", "https:", "ws://", "wss://", "'//", "\"//", "innerHTML", "outerHTML", "eval(",
          "insertAdjacentHTML", "document.write", "new Function", "localStorage", "sessionStorage",
          "document.cookie", "indexedDB", "@import", "url("}) {
      EXPECT_THAT(text, Not(HasSubstr(no))) << file.path;
    }
    if (file.path != "/") continue;
    const std::regex is_inline(R"(<style|<script(?![^>]* src=)|\sstyle=|\son[a-z]+=)");
    EXPECT_FALSE(std::regex_search(text, is_inline));
  }
}

// If a module imports a file that is missing, the page stays empty.
TEST_F(PageTest, EveryFileThatItNamesIsServed) {
  const std::regex name(
      R"re((?:from|src=|href=)\s*["'](?:\./|/)(page/)?([\w.-]+\.(?:js|css|svg))["'])re");
  int names = 0;
  for (const PageFile& file : page_files()) {
    const std::string text(file.content);
    for (std::sregex_iterator match(text.begin(), text.end(), name), end; match != end; ++match) {
      ++names;
      EXPECT_EQ(get("/page/" + (*match)[2].str()).status, 200) << file.path << (*match)[0];
    }
  }
  EXPECT_GT(names, 10);
}

}  // namespace
}  // namespace runnel
