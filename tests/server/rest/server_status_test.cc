// GET /v1/status over real sockets.

#include "server/rest/server_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HttpStatus, ReportsTheModelsAndTheirCounters) {
  const OpenAiServer test;
  const ApiAnswer before = test.get("/v1/status");
  ASSERT_EQ(before.status, 200) << before.head;
  EXPECT_THAT(before.head, HasSubstr("Cache-Control: no-store"));
  ASSERT_EQ(before.body["models"].size(), 1U);
  const Json idle = before.body["models"][0];
  EXPECT_EQ(idle["id"], "fake");
  EXPECT_EQ(idle["state_bytes"], 8);
  EXPECT_EQ(idle["position_bytes"], 0);
  EXPECT_EQ(idle["begin"], Json());
  EXPECT_EQ(idle["image"], Json());
  EXPECT_EQ(idle["symbols"], Json());
  EXPECT_EQ(idle["has_text"], true);
  EXPECT_EQ(idle["has_chat"], false);
  EXPECT_EQ(idle["sessions"], idle["sessions_free"]);

  const Json request = {{"prompt", "ab"}, {"max_tokens", 5}, {"keep", true}, {"ignore_eos", true}};
  ASSERT_EQ(test.complete(request).status, 200);
  Json used;
  EXPECT_TRUE(eventually([&] {  // a call is counted when it ends
    used = test.get("/v1/status").body["models"][0];
    return used["first_values"].get<int>() > idle["first_values"].get<int>();
  }));
  EXPECT_EQ(used["sessions_free"].get<int>(), used["sessions"].get<int>() - 1);
  EXPECT_EQ(used["values_sampled"].get<int>() - idle["values_sampled"].get<int>(), 5);
  EXPECT_EQ(used["first_values"].get<int>() - idle["first_values"].get<int>(), 1);
  EXPECT_GT(used["first_value_seconds"].get<double>(), idle["first_value_seconds"].get<double>());
  EXPECT_GT(used["steps"].get<int>(), idle["steps"].get<int>());
  EXPECT_GE(used["step_rows"].get<int>(), used["steps"].get<int>());
}

TEST(HttpStatus, AModelWithAnImageSaysItsSize) {
  Spec spec = byte_spec();
  spec.image = {.height = 2, .width = 3, .channels = 1};
  const OpenAiServer test({}, {}, spec);
  const Json model = test.get("/v1/status").body["models"][0];
  EXPECT_EQ(model["image"], (Json{{"width", 3}, {"height", 2}, {"channels", 1}}));
  EXPECT_EQ(model["has_text"], false);
}

TEST(HttpStatus, AModelListsItsSymbolsUnlessThereAreTooMany) {
  Spec spec = byte_spec();
  spec.symbols = {"low", "high"};
  const OpenAiServer few({}, {}, spec);
  EXPECT_EQ(few.get("/v1/status").body["models"][0]["symbols"], Json::array({"low", "high"}));
  spec.symbols.assign(257, "one of too many");
  const OpenAiServer many({}, {}, spec);
  EXPECT_EQ(many.get("/v1/status").body["models"][0]["symbols"], Json());
}

// The page asks every second. If these calls were logged, they would fill the log.
TEST(HttpStatus, OnlyRefusalsAreLogged) {
  const OpenAiServer test;
  ASSERT_EQ(test.get("/v1/status").status, 200);
  EXPECT_THAT(test.log_text.str(), Not(HasSubstr("GetStatus")));
  const TempDir folder;
  const std::string keys = folder.path() + "/keys";
  write_file(keys, "");
  ASSERT_EQ(chmod(keys.c_str(), 0600), 0);
  const OpenAiServer closed(OpenAiServer::Options{.keys = keys});
  EXPECT_EQ(closed.get("/v1/status").status, 401);
  EXPECT_THAT(closed.log_text.str(), HasSubstr("rpc=GetStatus"));
}

}  // namespace
}  // namespace runnel
