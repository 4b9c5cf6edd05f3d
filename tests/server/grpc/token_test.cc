// State tokens: sequences that continue on any server and leave nothing there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/key_file.h"
#include "tests/base/test_files.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

class TokenTest : public ::testing::Test {
 protected:
  TokenTest() {
    options_.host.seal_keys = folder_.path() + "/seal";
    write_file(options_.host.seal_keys, std::string(32, 's'));
    EXPECT_EQ(chmod(options_.host.seal_keys.c_str(), 0600), 0);
  }

  std::unique_ptr<TestServer> server(const Clock& clock = real_clock()) const {
    return std::make_unique<TestServer>(served_bundle(small_symbol_spec(), 1), options_, clock);
  }

  // A request that continues `token`, or starts a sequence if it is "", and asks for a token.
  static v1::GenerateRequest request_after(const std::string& token,
                                           const std::vector<int32_t>& prompt, int64_t values) {
    v1::GenerateRequest request = generate_request(prompt, values, 7);
    request.set_include_state(true);
    if (!token.empty()) request.mutable_origin()->set_token(token);
    return request;
  }

  // Makes a call with a caller's key.
  static Generated call_as(TestServer& test, const std::string& caller,
                           const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + caller);
    const auto reader = test.inference->Generate(&context, request);
    Generated out;
    for (v1::GenerateResponse response; reader->Read(&response);) out.take(response);
    out.status = reader->Finish();
    return out;
  }

  const TempDir folder_;
  ServerOptions options_;
};

TEST_F(TokenTest, ASequenceGoesFromServerToServerWithTheBitsOfASession) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  std::string token;
  for (int turn = 0; turn < 6; ++turn) {
    const std::vector<int32_t> prompt = {turn % 3, 1};
    v1::GenerateRequest in_session = generate_request(prompt, 5, 7);
    in_session.mutable_origin()->set_session("a");
    const Generated expected = one->generate(in_session);
    ASSERT_TRUE(expected.status.ok()) << expected.status.error_message();
    TestServer& test = turn % 2 == 0 ? *two : *one;
    const Generated found = test.generate(request_after(token, prompt, 5));
    ASSERT_TRUE(found.status.ok()) << found.status.error_message();
    EXPECT_EQ(found.values, expected.values) << turn;
    EXPECT_EQ(found.started.session(), "");
    EXPECT_EQ(found.finished.at(0).usage().position(), expected.finished.at(0).usage().position());
    token = found.finished.at(0).token();
    EXPECT_EQ(token.substr(0, 8), "RNLSTATE");
  }
  one->expect_free(7);
  two->expect_free(8);
}

TEST_F(TokenTest, AnOldTokenForks) {
  const auto test = server();
  const Generated first = test->generate(request_after("", {1, 2}, 3));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const std::string token = first.finished.at(0).token();
  const Generated once = test->generate(request_after(token, {3}, 6));
  const Generated again = test->generate(request_after(token, {3}, 6));
  EXPECT_EQ(once.values, again.values);
  v1::GenerateRequest several = request_after(token, {3}, 6);
  several.set_include_state(false);
  several.set_samples(3);
  const Generated forks = test->generate(several);
  ASSERT_TRUE(forks.status.ok()) << forks.status.error_message();
  EXPECT_EQ(forks.values.size(), 3U);
  EXPECT_EQ(forks.values.at(0), once.values.at(0));
  EXPECT_EQ(forks.finished.at(0).token(), "");
  test->expect_free(8);
}

TEST_F(TokenTest, ACallThatEndsEarlyLeaksNothing) {
  const auto test = server();
  const std::string token = test->generate(request_after("", {1, 2}, 3)).finished.at(0).token();
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto reader = test->inference->Generate(&context, request_after(token, {3}, 1 << 20));
    v1::GenerateResponse response;
    for (int read = 0; read < i % 4; ++read) static_cast<void>(reader->Read(&response));
    context.TryCancel();
    static_cast<void>(reader->Finish());
  }
  test->expect_free(8);
}

TEST_F(TokenTest, ATokenBelongsToItsCallerAndExpires) {
  options_.host.keys = folder_.path() + "/keys";
  const Status written =
      change_key_file(options_.host.keys, true, [](std::vector<KeyEntry>& entries) {
        for (const char* const name : {"alice", "bob"}) {
          entries.emplace_back();
          entries.back().name = name;
          entries.back().digest = digest_of_key(name);
        }
        return Status();
      });
  ASSERT_TRUE(written.ok()) << written.message();
  Clock clock{TimePoint(std::chrono::hours(1))};
  const auto test = server(clock);
  const Generated first = call_as(*test, "alice", request_after("", {1, 2}, 3));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const v1::GenerateRequest next = request_after(first.finished.at(0).token(), {3}, 3);
  EXPECT_TRUE(call_as(*test, "alice", next).status.ok());
  const grpc::Status refused = call_as(*test, "bob", next).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("the state token belongs to another caller"));
  clock.advance(std::chrono::hours(1));
  const grpc::Status late = call_as(*test, "alice", next).status;
  EXPECT_EQ(late.error_code(), kPrecondition);
  EXPECT_EQ(field_of(late), "origin.token");
  EXPECT_THAT(late.error_message(),
              HasSubstr("the state token expired 0 seconds ago; use it where"));
}

TEST_F(TokenTest, InvalidRequestsAreRefused) {
  const auto test = server();
  const std::string token = test->generate(request_after("", {1, 2}, 3)).finished.at(0).token();
  const auto refusal = [&](const std::function<void(v1::GenerateRequest&)>& with) {
    v1::GenerateRequest request = request_after(token, {1}, 3);
    with(request);
    return test->generate(request).status;
  };
  EXPECT_EQ(refusal([](auto& request) { request.set_samples(2); }).error_code(), kInvalid);
  EXPECT_EQ(refusal([](auto& request) { request.set_keep(true); }).error_code(), kInvalid);
  EXPECT_EQ(refusal([](auto& request) { request.mutable_origin()->set_session("a"); }).error_code(),
            kInvalid);
  EXPECT_EQ(refusal([](auto& request) { request.mutable_origin()->set_state("a"); }).error_code(),
            kInvalid);
  EXPECT_EQ(refusal([](auto& request) { request.set_expected_position(1); }).error_code(),
            grpc::StatusCode::ABORTED);
  for (const std::string& wrong : {std::string(), std::string("x"), token.substr(0, 100),
                                   token + "x", "X" + token.substr(1)}) {
    EXPECT_EQ(
        refusal([&](auto& request) { request.mutable_origin()->set_token(wrong); }).error_code(),
        kInvalid);
  }
  v1::ScoreRequest score = score_request({1, 2});
  score.mutable_origin()->set_token(token);
  EXPECT_EQ(test->score({score}).status.error_code(), kInvalid);
  test->expect_free(8);

  options_.host.token_bytes = 16;
  const grpc::Status large = server()->generate(request_after("", {1}, 3)).status;
  EXPECT_EQ(large.error_code(), kInvalid);
  EXPECT_THAT(large.error_message(), HasSubstr("a token of this server at most 16"));
  options_.host.seal_keys.clear();
  const grpc::Status none = server()->generate(request_after(token, {1}, 3)).status;
  EXPECT_EQ(none.error_code(), kPrecondition);
  EXPECT_THAT(none.error_message(), HasSubstr("start it with --seal-keys"));
}

}  // namespace
}  // namespace runnel
