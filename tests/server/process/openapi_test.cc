// Compares /openapi.json with the limits and the error objects of the code.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/json.h"
#include "base/limits.h"
#include "server/calls/export_call.h"
#include "server/calls/session_calls.h"
#include "server/host/server_context.h"
#include "server/http/fault.h"
#include "server/http/request_fields.h"
#include "server/openai/completion_request.h"
#include "server/openai/image_request.h"
#include "server/process/http_routes.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kTextBytes = 1000;

std::string document(int64_t samples = limits::kSamples.default_value,
                     int64_t max_values = limits::kMaxValues.default_value) {
  std::ostringstream lines;
  const EventLog log("error", false, lines);
  ServerContext state(log);
  state.samples = samples;
  state.max_values = max_values;
  state.text_bytes = kTextBytes;
  return openapi_json(state);
}

Json components(const char* kind) { return Json::parse(document())["components"][kind]; }

// The types that a schema allows.
std::set<std::string> allowed_types(const Json& schema) {
  const Json types = schema.value("type", Json());
  if (types.is_string()) return {types.get<std::string>()};
  return types.is_array() ? types.get<std::set<std::string>>() : std::set<std::string>();
}

// The keywords that bound a number, with their values.
using Bounds = std::map<std::string, Json>;

Bounds range(const Json& least, const Json& most) {
  return {{"minimum", least}, {"maximum", most}};
}
Bounds above_zero(const Json& most) { return {{"exclusiveMinimum", 0}, {"maximum", most}}; }

// The bounds of every number in a request, taken from the code.
const std::map<std::string, Bounds>& known_bounds() {
  static const std::map<std::string, Bounds> kKnown = {
      {"max_tokens", range(1, limits::kMaxValues.default_value)},
      {"max_completion_tokens", range(1, limits::kMaxValues.default_value)},
      {"max_output_tokens", range(1, limits::kMaxValues.default_value)},
      {"max_tool_calls", range(1, limits::kMaxValues.max)},
      {"n", range(1, limits::kSamples.default_value)},
      {"best_of", range(1, limits::kSamples.default_value)},
      {"count", range(1, limits::kSamples.default_value)},
      {"temperature", range(0, kMostTemperature)},
      {"top_p", above_zero(1)},
      {"min_p", range(0, 1)},
      {"top_k", range(-1, INT32_MAX)},
      {"seed", range(INT64_MIN, INT64_MAX)},
      {"repetition_penalty", above_zero(kMostRepetitionPenalty)},
      {"presence_penalty", range(-kMostPenalty, kMostPenalty)},
      {"frequency_penalty", range(-kMostPenalty, kMostPenalty)},
      {"logprobs", range(0, kMaxTopLogProbs)},
      {"top_logprobs", range(0, kMaxTopLogProbs)},
      {"position", range(0, INT64_MAX)},
      {"max_queue_time", range(0, kMostQueueTime.count())},
      {"partial_images", range(0, kMaxPartialImages)},
  };
  return kKnown;
}

TEST(OpenApiBounds, OfNumbersMatchTheCode) {
  const Json schemas = components("schemas");
  std::set<std::string> seen;
  for (const auto& [name, schema] : schemas.items()) {
    if (!name.ends_with("Request")) continue;
    for (const auto& [key, property] : schema["properties"].items()) {
      const std::set<std::string> types = allowed_types(property);
      if (!types.contains("number") && !types.contains("integer")) continue;
      ASSERT_TRUE(known_bounds().contains(key)) << name << " " << key;
      Bounds bounds = known_bounds().at(key);
      if (name == "CompletionRequest" && key == "max_tokens") bounds["minimum"] = 0;
      seen.insert(key);
      for (const char* const keyword : {"minimum", "exclusiveMinimum", "maximum"}) {
        EXPECT_EQ(property.value(keyword, Json()), bounds[keyword])
            << name << " " << key << " " << keyword;
      }
    }
  }
  EXPECT_EQ(seen.size(), known_bounds().size());
}

TEST(OpenApiBounds, OfListsAndTextsMatchTheCode) {
  const Json schemas = components("schemas");
  for (const char* const name : {"CompletionRequest", "ChatRequest"}) {
    const Json& stop = schemas[name]["properties"]["stop"]["oneOf"];
    EXPECT_EQ(stop[1]["maxLength"], kMaxStopTextBytes);
    EXPECT_EQ(stop[2]["maxItems"], kMaxStopSequences);
    EXPECT_EQ(stop[2]["items"], stop[1]);
  }
  for (const char* const name : {"CompletionRequest", "ChatRequest", "ResponseRequest"}) {
    const Json& bias = schemas[name]["properties"]["logit_bias"];
    EXPECT_EQ(bias["maxProperties"], kMaxLogitBiases);
    EXPECT_EQ(bias["additionalProperties"]["minimum"], -kMostLogitBias);
    EXPECT_EQ(bias["additionalProperties"]["maximum"], kMostLogitBias);
  }
  const Json& prompt = schemas["CompletionRequest"]["properties"]["prompt"]["oneOf"];
  EXPECT_EQ(prompt[1]["maxLength"], kTextBytes);
  EXPECT_EQ(prompt[2]["items"]["maximum"], INT32_MAX);
  EXPECT_EQ(prompt[3]["maxItems"], kMaxPrompts);
  EXPECT_EQ(schemas["ForkSessionRequest"]["properties"]["children"]["maxItems"],
            limits::kSamples.default_value);
  const std::string id = "^[A-Za-z0-9._:-]{1," + std::to_string(kMaxNameLength) + "}$";
  EXPECT_EQ(schemas["CreateSessionRequest"]["properties"]["id"]["pattern"], id);
}

TEST(OpenApiBounds, OfQueriesMatchTheCode) {
  std::map<std::string, Json> numbers;
  const Json paths = Json::parse(document())["paths"];
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (method == "parameters") continue;
      for (const Json& parameter : operation.value("parameters", Json::array())) {
        const Json& schema = parameter["schema"];
        if (schema["type"] == "integer") numbers[parameter["name"]] = schema;
      }
    }
  }
  EXPECT_EQ(numbers.size(), 2U);
  EXPECT_EQ(numbers["limit"]["minimum"], 1);
  EXPECT_EQ(numbers["limit"]["maximum"], kLargestPage);
  EXPECT_EQ(numbers["expires_in"]["minimum"], 1);
  EXPECT_EQ(numbers["expires_in"]["maximum"], kMostExpiry.count());
}

TEST(OpenApiBounds, FollowTheLimitsOfTheServer) {
  EXPECT_THAT(document(), Not(HasSubstr("\"limits.")));
  const Json schemas = Json::parse(document(3, 7))["components"]["schemas"];
  EXPECT_EQ(schemas["CompletionRequest"]["properties"]["n"]["maximum"], 3);
  EXPECT_EQ(schemas["ChatRequest"]["properties"]["max_tokens"]["maximum"], 7);
}

std::set<std::string> statuses_of(const Json& operation) {
  std::set<std::string> statuses;
  for (const auto& [status, answer] : operation["responses"].items()) statuses.insert(status);
  return statuses;
}

TEST(OpenApiAnswers, EveryRefusalIsThere) {
  const Json described = components("responses");
  const Json paths = Json::parse(document())["paths"];
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (method == "parameters" || path == "/openapi.json") continue;
      std::set<std::string> expected = {"200", "401", "403", "429", "500", "503", "default"};
      if (operation.contains("requestBody")) {
        expected.insert({"400", "408", "415"});
        const bool is_json = operation["requestBody"]["content"].contains("application/json");
        if (is_json) expected.insert("413");
      }
      if (path.find('{') != std::string::npos) expected.insert("404");
      const std::set<std::string> statuses = statuses_of(operation);
      EXPECT_TRUE(std::ranges::includes(statuses, expected)) << method << " " << path;
      for (const std::string& status : statuses) {
        EXPECT_TRUE(status == "200" || described.contains(status)) << status;
      }
    }
  }
}

TEST(OpenApiAnswers, AStreamHasChunksOrAnError) {
  const Json paths = Json::parse(document())["paths"];
  const auto events = [&](const char* path) {
    return paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"];
  };
  const auto reference = [](const std::string& name) {
    return Json{{"$ref", "#/components/schemas/" + name}};
  };
  for (const auto& [path, chunk] : {std::pair("/v1/completions", "CompletionChunk"),
                                    std::pair("/v1/chat/completions", "ChatChunk"),
                                    std::pair("/v1/images/generations", "ImageEvent")}) {
    EXPECT_EQ(events(path)["oneOf"], Json::array({reference(chunk), reference("Error")})) << path;
  }
  EXPECT_EQ(events("/v1/responses")["$ref"], "#/components/schemas/ResponseEvent");
}

// A refusal's body and the last event of a failed stream have the same JSON.
TEST(OpenApiAnswers, AnErrorIsAsDescribed) {
  const Json schema = components("schemas")["Error"]["properties"]["error"];
  const Json& types = schema["properties"]["type"]["enum"];
  const auto required = schema["required"].get<std::set<std::string>>();
  for (int code = 1; code <= static_cast<int>(Code::kUnauthenticated); ++code) {
    const Fault fault{Status(static_cast<Code>(code), "wrong"), code % 2 == 0 ? "prompt" : ""};
    const Json error = Json::parse(error_json(fault))["error"];
    EXPECT_EQ(std::ranges::count(types, error["type"]), 1) << error;
    std::set<std::string> members;
    for (const auto& [key, value] : error.items()) members.insert(key);
    EXPECT_EQ(members, required);
  }
}

}  // namespace
}  // namespace runnel
