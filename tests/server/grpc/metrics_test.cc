// The metrics of a server: their values after calls, and whether docs and dashboard have them.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "base/json.h"
#include "server/host/call_metrics.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string contents(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex);
       it != std::sregex_iterator(); ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

// The names of a server's metric families.
std::set<std::string> families() {
  TestServer test(served_fake("fake"));
  return matches(test.server.metrics_text(), "# TYPE (\\w+) ");
}

TEST(Metrics, CountCallsByMethodModelAndCode) {
  TestServer test(served_fake("fake"));
  EXPECT_TRUE(test.generate(generate_request({1, 2, 3}, 20)).status.ok());
  EXPECT_FALSE(test.generate(generate_request({1000}, 20)).status.ok());
  EXPECT_TRUE(test.score({1, 2, 3, 4}).status.ok());
  EXPECT_TRUE(test.create("find-me").ok());
  grpc::ClientContext context;
  v1::ListStatesResponse states;
  EXPECT_TRUE(test.sessions->ListStates(&context, {}, &states).ok());
  v1::ScoreRequest with_token = score_request({1, 2});
  with_token.mutable_origin()->set_token("t");
  EXPECT_FALSE(test.score(std::vector{with_token}).status.ok());
  v1::GenerateRequest elsewhere = generate_request({1}, 1);
  elsewhere.set_model("absent");
  EXPECT_FALSE(test.generate(elsewhere).status.ok());
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  const std::string text = test.server.metrics_text();
  const auto calls = [](const std::string& model, const std::string& method,
                        const std::string& code) {
    return "runnel_calls_total{model=\"" + model + "\",method=\"" + method + "\",code=\"" + code +
           "\"} 1\n";
  };
  EXPECT_THAT(text, HasSubstr(calls("fake", "Generate", "OK")));
  EXPECT_THAT(text, HasSubstr(calls("fake", "Generate", "INVALID_ARGUMENT")));
  EXPECT_THAT(text, HasSubstr(calls("fake", "Score", "OK")));
  EXPECT_THAT(text, HasSubstr(calls("fake", "Score", "INVALID_ARGUMENT")));
  EXPECT_THAT(text, HasSubstr(calls("fake", "CreateSession", "OK")));
  EXPECT_THAT(text, HasSubstr(calls("fake", "ListStates", "OK")));
  EXPECT_THAT(text, HasSubstr(calls("(other)", "Generate", "NOT_FOUND")));
  EXPECT_THAT(text, HasSubstr("runnel_first_value_seconds_count{model=\"fake\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("runnel_queue_seconds_count{model=\"fake\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("runnel_value_gap_seconds_count{model=\"fake\"} 19\n"));
  EXPECT_THAT(text, HasSubstr("runnel_values_sampled_total{model=\"fake\"} 20\n"));
  EXPECT_THAT(text, HasSubstr("runnel_slots{model=\"fake\",state=\"free\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("runnel_slots{model=\"fake\",state=\"new\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("runnel_connections 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("absent")));
  EXPECT_THAT(text, Not(HasSubstr("find-me")));
}

TEST(Metrics, CountRefusalsByReason) {
  ModelLimits limits = kTestLimits;
  limits.slots = 1;
  TestServer test(served_fake("fake", {}, {}, limits));
  EXPECT_TRUE(test.create("a").ok());
  EXPECT_EQ(test.create("b").error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  EXPECT_THAT(test.server.metrics_text(),
              HasSubstr("runnel_refusals_total{model=\"fake\",reason=\"sessions\"} 1\n"));
}

TEST(Metrics, CountStoredStatesAndIdleSessionsSeparately) {
  ServedModel model = served_fake("fake");
  const auto image = std::make_shared<StateImage>();
  image->position = 1;
  image->pending = 1;
  image->bytes.resize(static_cast<size_t>(model.engine->state_bytes()));
  std::atomic<bool> added{false};
  model.engine->add_state("start", image, [&](const auto& r) { added = r.ok(); });
  ASSERT_TRUE(eventually([&] { return added.load(); }));
  model.states = {{"start", 1, "fake"}};
  TestServer test(std::move(model));
  const std::string text = test.server.metrics_text();
  EXPECT_THAT(text, HasSubstr("runnel_slots{model=\"fake\",state=\"stored\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("runnel_slots{model=\"fake\",state=\"idle\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("runnel_slots{model=\"fake\",state=\"free\"} 7\n"));
}

TEST(Metrics, CountBytesOfMessages) {
  TestServer test(served_fake("fake"));
  const v1::GenerateRequest request = generate_request({1, 2, 3}, 4);
  EXPECT_TRUE(test.generate(request).status.ok());
  const std::string text = test.server.metrics_text();
  EXPECT_THAT(text, HasSubstr("runnel_received_bytes_total " +
                              std::to_string(request.ByteSizeLong()) + "\n"));
  EXPECT_THAT(text, Not(HasSubstr("runnel_sent_bytes_total 0\n")));
}

TEST(Metrics, CountEveryMethodByItsName) {
  TestServer test(served_fake("fake"));
  std::set<std::string> names;
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const char* name : {"Inference", "Sessions", "Models", "Admin"}) {
    const auto* service = pool->FindServiceByName(std::string("runnel.v1.") + name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      names.insert(service->method(i)->name());
      test.call_raw("/" + service->full_name() + "/" + service->method(i)->name(), "");
    }
  }
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  EXPECT_EQ(matches(test.server.metrics_text(), "method=\"([\\w.]+)\",code=\"\\w+\"\\} [1-9]"),
            names);
}

TEST(MetricsDocs, HaveEveryMetricAndNoOther) {
  EXPECT_EQ(matches(contents("docs/metrics.md"), "\n\\| `((?:runnel|process)_\\w+)` \\|"),
            families());
}

TEST(MetricsDocs, HaveEveryReason) {
  const std::string docs = contents("docs/metrics.md");
  for (const std::string_view reason : kReasons) {
    EXPECT_THAT(docs, HasSubstr("`" + std::string(reason) + "`"));
  }
}

TEST(MetricsDocs, HaveEveryMethodOfHttp) {
  const std::string docs = contents("docs/http.md");
  for (const std::string_view method : kMethods) {
    if (method.find('.') == method.npos && method != "GetStatus") continue;
    EXPECT_THAT(docs, HasSubstr("`" + std::string(method) + "`"));
  }
}

// The expressions that a dashboard's panels and variables ask for.
void collect_expressions(const Json& json, std::vector<std::string>& found) {
  for (const auto& [key, value] : json.items()) {
    const bool asks = key == "expr" || key == "definition";
    if (asks) found.push_back(value.get<std::string>());
    if (value.is_structured()) collect_expressions(value, found);
  }
}

TEST(MetricsDashboard, UsesOnlyMetricsThatExist) {
  const std::set<std::string> known = families();
  std::vector<std::string> expressions;
  collect_expressions(Json::parse(contents("docker/grafana-dashboard.json")), expressions);
  std::set<std::string> asked;
  for (const std::string& expression : expressions) {
    const std::set<std::string> names = matches(expression, "((?:runnel|process)_\\w+)");
    EXPECT_FALSE(names.empty()) << expression;
    for (const std::string& name : names) {
      const std::string family = std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
      EXPECT_TRUE(known.contains(name) || known.contains(family)) << name;
      asked.insert(family);
    }
  }
  EXPECT_GE(expressions.size(), 12U);
}

}  // namespace
}  // namespace runnel
