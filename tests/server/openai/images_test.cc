// POST /v1/images/generations over real sockets: whole images, and parts while they are drawn.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <png.h>

#include "tests/base/case_name.h"
#include "tests/engine/fake_model.h"
#include "tests/server/openai/openai_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kImagesPath = "/v1/images/generations";
constexpr ImageShape kGrey = {.height = 6, .width = 5, .channels = 1};
constexpr ImageShape kColour = {.height = 4, .width = 3, .channels = 3};
constexpr ImageShape kLarge = {.height = 1000, .width = 1000, .channels = 1};

Spec image_spec(const ImageShape& shape) {
  Spec spec = fake_spec(shape.bytes() - 1, true);
  spec.image = shape;
  return spec;
}

// A server whose images have 6 rows of 5 grey pixels. It has no tokenizer.
struct ImageServer : OpenAiServer {
  explicit ImageServer(const ImageShape& shape = kGrey, const Options& options = {},
                       std::function<void()> on_submit = {})
      : OpenAiServer(options, std::move(on_submit), image_spec(shape)) {}

  ApiAnswer draw(const Json& body) const { return post(kImagesPath, body); }

  // The data of all events. Checks that each has the type of its event.
  std::vector<Json> events(Json body) const {
    body["stream"] = true;
    HttpClient one = client();
    one.send(request("POST", kImagesPath, body.dump()));
    std::istringstream text(one.response().body);
    std::vector<Json> all;
    for (std::string type, data, empty; std::getline(text, type);) {
      EXPECT_TRUE(std::getline(text, data) && std::getline(text, empty));
      all.push_back(Json::parse(data.substr(6)));
      EXPECT_EQ(type, "event: " + all.back()["type"].get<std::string>());
    }
    return all;
  }
};

Json image_request() { return {{"model", "fake"}, {"prompt", ""}, {"seed", 7}}; }

std::vector<uint8_t> bytes_of(const std::vector<int32_t>& values) {
  return {values.begin(), values.end()};
}

// The bytes of an image: the begin value or the given values, and those sampled with seed 7.
std::vector<uint8_t> expected(const ImageShape& shape, uint32_t sample = 0,
                              std::vector<int32_t> known = {7}) {
  const int left = static_cast<int>(shape.bytes() - std::ssize(known));
  const auto drawn = FakeModel::expected(image_spec(shape), known, 7, sample, left);
  known.insert(known.end(), drawn.begin(), drawn.end());
  return bytes_of(known);
}

std::vector<uint8_t> decoded(const Json& base64) {
  const std::string text = base64;
  std::vector<uint8_t> bytes(text.size() / 4 * 3);
  EXPECT_EQ(EVP_DecodeBlock(bytes.data(), reinterpret_cast<const uint8_t*>(text.data()),
                            static_cast<int>(text.size())),
            std::ssize(bytes));
  for (size_t i = text.size(); i > 0 && text[i - 1] == '='; --i) bytes.pop_back();
  return bytes;
}

// The pixels of a PNG file, which must have `shape`.
std::vector<uint8_t> pixels_of(const Json& base64, const ImageShape& shape) {
  const std::vector<uint8_t> file = decoded(base64);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, file.data(), file.size()), 0);
  EXPECT_EQ(static_cast<int>(image.height), shape.height);
  EXPECT_EQ(static_cast<int>(image.width), shape.width);
  EXPECT_EQ(image.format, shape.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB);
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  return pixels;
}

TEST(Images, AreWhatTheModelDraws) {
  for (const ImageShape& shape : {kGrey, kColour}) {
    const ImageServer test(shape);
    const ApiAnswer answer = test.draw(image_request());
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body["output_format"], "png");
    EXPECT_EQ(answer.body["size"], shape.channels == 1 ? "5x6" : "3x4");
    EXPECT_GT(answer.body["created"], 1'700'000'000);
    EXPECT_EQ(answer.body["usage"]["input_tokens"], 0);
    EXPECT_EQ(answer.body["usage"]["output_tokens"], shape.bytes());
    ASSERT_EQ(answer.body["data"].size(), 1U);
    EXPECT_EQ(pixels_of(answer.body["data"][0]["b64_json"], shape), expected(shape));
  }
}

TEST(Images, SeveralImagesAreTheSamplesOfOneCall) {
  const ImageServer test;
  Json body = image_request();
  body["n"] = 3;
  const ApiAnswer answer = test.draw(body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(answer.body["data"].size(), 3U);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pixels_of(answer.body["data"][i]["b64_json"], kGrey), expected(kGrey, i));
  }
  EXPECT_EQ(answer.body["usage"]["output_tokens"], 3 * kGrey.bytes());
}

TEST(Images, ContinueFromTheGivenBytes) {
  const ImageServer test;
  std::vector<int32_t> given(17);
  for (int i = 0; i < 17; ++i) given[i] = 3 * i;
  Json body = image_request();
  body["prompt"] = given;
  const ApiAnswer answer = test.draw(body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(pixels_of(answer.body["data"][0]["b64_json"], kGrey), expected(kGrey, 0, given));
  EXPECT_EQ(answer.body["usage"], Json::parse(R"({"input_tokens":17,"output_tokens":13,
      "total_tokens":30,"input_tokens_details":{"image_tokens":17,"text_tokens":0}})"));
}

// --- Streams ---

TEST(Images, AStreamEndsWithEachPicture) {
  const ImageServer test;
  Json body = image_request();
  body["n"] = 2;
  const std::vector<Json> events = test.events(body);
  ASSERT_EQ(events.size(), 2U);
  for (const Json& event : events) {
    EXPECT_EQ(event["type"], "image_generation.completed");
    EXPECT_EQ(event["size"], "5x6");
    EXPECT_EQ(event["usage"]["output_tokens"], kGrey.bytes());
    EXPECT_EQ(pixels_of(event["b64_json"], kGrey), expected(kGrey, event["index"]));
  }
  EXPECT_NE(events[0]["index"], events[1]["index"]);
}

TEST(Images, RowsAreThoseOfThePicture) {
  for (const ImageShape& shape : {kGrey, kColour}) {
    const ImageServer test(shape);
    Json body = image_request();
    body.update({{"n", 2}, {"rows", true}, {"partial_images", 3}});
    body["prompt"] = std::vector<int32_t>(shape.width * shape.channels + 1, 9);
    std::vector<std::vector<uint8_t>> drawn(2);
    std::vector<int> next(2);
    for (const Json& event : test.events(body)) {
      if (event["type"] == "image_generation.partial_image") continue;
      const size_t index = event["index"];
      if (event["type"] == "image_generation.completed") {
        EXPECT_EQ(pixels_of(event["b64_json"], shape), drawn.at(index));
        EXPECT_EQ(next[index], shape.height);
        next[index] = -1;
        continue;
      }
      ASSERT_EQ(event["type"], "image_generation.row");
      EXPECT_EQ(event["row"], next.at(index)++);
      const auto row = decoded(event["b64_bytes"]);
      EXPECT_EQ(std::ssize(row), shape.width * shape.channels);
      drawn[index].insert(drawn[index].end(), row.begin(), row.end());
    }
    EXPECT_EQ(next, (std::vector<int>{-1, -1}));
  }
}

// The number of partial images depends on when values are delivered.
TEST(Images, PartialImagesAreGreyWhereNothingIsDrawnYet) {
  const ImageServer test;
  Json body = image_request();
  body["partial_images"] = 2;
  body["prompt"] = std::vector<int32_t>(10, 9);  // 2 of 6 rows
  const std::vector<Json> events = test.events(body);
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(events[0]["type"], "image_generation.partial_image");
  EXPECT_EQ(events[0]["partial_image_index"], 0);
  const auto part = pixels_of(events[0]["b64_json"], kGrey);
  const auto whole = pixels_of(events.back()["b64_json"], kGrey);
  EXPECT_EQ(events.back()["type"], "image_generation.completed");
  EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + 10, part.begin()));
  EXPECT_EQ(part.back(), 0x80);
  int last = -1;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_GT(events[i]["partial_image_index"], last);
    last = events[i]["partial_image_index"];
  }
}

// --- Refusals ---

struct ImageRefusal {
  const char* change;  // to a valid request
  int status;
  const char* param;
  const char* says;

  friend void PrintTo(const ImageRefusal& of, std::ostream* out) { *out << of.change; }
};

class ImagesRefuse : public ::testing::TestWithParam<ImageRefusal> {};

TEST_P(ImagesRefuse, NamingTheField) {
  const ImageServer test;
  Json body = image_request();
  body.merge_patch(Json::parse(GetParam().change));
  const ApiAnswer answer = test.draw(body);
  EXPECT_EQ(answer.status, GetParam().status) << answer.body;
  EXPECT_EQ(answer.error("param"), GetParam().param) << answer.body;
  EXPECT_THAT(answer.error("message"), HasSubstr(GetParam().says));
  EXPECT_EQ(answer.error("type"), "invalid_request_error");
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
  EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ImagesRefuse,
    ::testing::Values(
        ImageRefusal{R"({"model":"other"})", 404, "model", "other"},
        ImageRefusal{R"({"prompt":"a cat"})", 400, "prompt", "no model here can draw by"},
        ImageRefusal{R"({"prompt":5})", 400, "prompt", "a list of the bytes"},
        ImageRefusal{R"({"prompt":["a"]})", 400, "prompt", "a list of the bytes"},
        ImageRefusal{R"({"prompt":[256]})", 400, "prompt", "prompt[0] is 256"},
        ImageRefusal{R"({"prompt":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})",
                     400, "prompt", "has 30 bytes; a picture of model 'fake' has 30"},
        ImageRefusal{R"({"size":"256x256"})", 400, "size", "model 'fake' draws '5x6'"},
        ImageRefusal{R"({"size":"6x5"})", 400, "size", "'5x6'"},
        ImageRefusal{R"({"size":5})", 400, "size", "expected a string"},
        ImageRefusal{R"({"response_format":"url"})", 400, "response_format", "'b64_json'"},
        ImageRefusal{R"({"output_format":"webp"})", 400, "output_format", "'png'"},
        ImageRefusal{R"({"output_compression":50})", 400, "output_compression", "100"},
        ImageRefusal{R"({"quality":"high"})", 400, "quality", "'auto'"},
        ImageRefusal{R"({"background":"transparent"})", 400, "background", "'opaque'"},
        ImageRefusal{R"({"style":"vivid"})", 400, "style", "leave it out"},
        ImageRefusal{R"({"n":0})", 400, "n", "between 1 and"},
        ImageRefusal{R"({"n":65})", 400, "n", "n is 65"},
        ImageRefusal{R"({"seed":0.5})", 400, "seed", "whole number"},
        ImageRefusal{R"({"top_p":0})", 400, "top_p", "top_p is 0"},
        ImageRefusal{R"({"temperature":-1})", 400, "temperature", "temperature is -1"},
        ImageRefusal{R"({"n":1.5})", 400, "n", "n is 1.5; it must be a whole number"},
        ImageRefusal{R"({"partial_images":1})", 400, "partial_images", "set stream"},
        ImageRefusal{R"({"rows":true})", 400, "rows", "set stream"},
        ImageRefusal{R"({"stream":true,"partial_images":4})", 400, "partial_images",
                     "between 0 and 3"},
        ImageRefusal{R"({"session":"s"})", 400, "session", "not a field"}),
    [](const auto& info) { return case_name(info.index, info.param.change); });

TEST(Images, AGreedyDrawingAcceptsEveryFilter) {
  const ImageServer test;
  Json body = image_request();
  body.update(Json::parse(R"({"temperature":1e-8,"top_p":0.0,"top_k":5.0,"min_p":0.5,"n":1.0})"));
  EXPECT_EQ(test.draw(body).status, 200);
}

TEST(Images, FieldsWithoutAnEffectAreAccepted) {
  const ImageServer test;
  Json body = image_request();
  body.update(Json::parse(R"({"user":"u","moderation":"low","quality":"auto","background":"opaque",
      "size":"5x6","response_format":"b64_json","output_format":"png","output_compression":100,
      "style":null,"stream":null,"partial_images":0,"rows":false})"));
  EXPECT_EQ(test.draw(body).body["data"], test.draw(image_request()).body["data"]);
  body["size"] = "auto";
  body.erase("prompt");
  EXPECT_EQ(test.draw(body).body["data"], test.draw(image_request()).body["data"]);
}

TEST(Images, ATextModelDrawsNoImagesAndAnImageModelTakesNoText) {
  const OpenAiServer text;
  const ApiAnswer none = text.post(kImagesPath, image_request());
  EXPECT_EQ(none.status, 400);
  EXPECT_EQ(none.error("param"), "model");
  EXPECT_EQ(none.error("message"), "model 'fake' draws no pictures: ask /v1/completions");
  const ImageServer pictures;
  const ApiAnswer refused = pictures.complete({{"model", "fake"}, {"prompt", "a"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "prompt");
  EXPECT_THAT(refused.error("message"), HasSubstr("model 'fake' has no tokenizer"));
}

// The engine limits how many values a call may sample.
TEST(Images, AnImageWithMoreValuesThanACallMaySampleIsRefused) {
  const ImageServer test(ImageShape{.height = 1025, .width = 1024, .channels = 1});
  const ApiAnswer answer = test.draw(image_request());
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.error("param"), "size");
  EXPECT_THAT(answer.error("message"), StartsWith("size is 1049600"));
}

// --- Limits on a client's cost ---

TEST(Images, AreCountedBeforeTheyAreMade) {
  const ImageServer test(kLarge, {.call_bytes = 16 << 20});
  for (const bool stream : {false, true}) {
    Json body = image_request();
    body.update({{"n", 2}, {"stream", stream}});
    const ApiAnswer answer = test.draw(body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.error("code"), "call_bytes");
    EXPECT_TRUE(eventually([&] { return test.state.memory.held() == 0; }));
  }
}

// If an image has one column, the event of each row is larger than its pixels.
TEST(Images, RowsAreCountedBeforeTheyAreMade) {
  const ImageShape narrow = {.height = 16000, .width = 1, .channels = 1};
  const ImageServer test(narrow, {.call_bytes = 8 << 20});
  Json body = image_request();
  EXPECT_EQ(test.draw(body).status, 200);
  body.update({{"stream", true}, {"rows", true}});
  EXPECT_EQ(test.draw(body).error("code"), "call_bytes");
}

TEST(Images, AClientThatGoesEndsItsCallAtOnce) {
  const ImageServer test(kLarge, {}, slowly);
  for (const bool stream : {false, true}) {
    Json body = image_request();
    body.update({{"n", 3}, {"stream", stream}, {"rows", stream}});
    HttpClient one = test.client();
    one.send(OpenAiServer::request("POST", kImagesPath, body.dump()));
    EXPECT_TRUE(eventually([&] { return test.sessions_free() == 5; }));
    if (stream) {
      EXPECT_EQ(one.read(15), "HTTP/1.1 200 OK");
    }
    one.reset();
    EXPECT_TRUE(eventually([&] { return test.sessions_free() == 8; }));
  }
}

TEST(Images, AFullPoolIsReportedBeforeAStreamBegins) {
  const ImageServer test(kLarge, {}, slowly);
  Json body = image_request();
  body.update({{"n", 8}, {"stream", true}});
  HttpClient holder = test.client();
  holder.send(OpenAiServer::request("POST", kImagesPath, body.dump()));
  EXPECT_THAT(holder.read(15), StartsWith("HTTP/1.1 200 OK"));
  body["n"] = 1;
  const ApiAnswer refused = test.draw(body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.error("code"), "sessions");
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
}

TEST(Images, WaitForAStateAsCompletionsDo) {
  ImageServer test(kLarge, {}, slowly);
  test.state.http_queue_time = kPatience;
  Json body = image_request();
  body.update({{"n", 8}, {"stream", true}});
  HttpClient holder = test.client();
  holder.send(OpenAiServer::request("POST", kImagesPath, body.dump()));
  EXPECT_THAT(holder.read(15), StartsWith("HTTP/1.1 200 OK"));
  body["n"] = 1;
  HttpClient one = test.client();
  one.send(OpenAiServer::request("POST", kImagesPath, body.dump()));
  const auto& engine = *test.state.models.all()->begin()->second->engine;
  EXPECT_TRUE(eventually([&] { return engine.stats().waiting == 1; }));
  holder.reset();
  EXPECT_THAT(one.read(15), StartsWith("HTTP/1.1 200 OK"));
  one.reset();
}

TEST(Images, ADrainEndsAStreamWithAnError) {
  ImageServer test(kLarge, {}, slowly);
  Json body = image_request();
  body["stream"] = true;
  HttpClient one = test.client();
  one.send(OpenAiServer::request("POST", kImagesPath, body.dump()));
  EXPECT_TRUE(eventually([&] { return test.sessions_free() == 7; }));
  test.state.calls.end_all({Code::kUnavailable, "the server is shutting down"});
  EXPECT_THAT(one.response().body,
              HasSubstr(R"(data: {"error":{"message":"the server is shutting)"));
}

TEST(Images, HaveALineInTheLog) {
  const ImageServer test;
  EXPECT_EQ(test.draw(image_request()).status, 200);
  EXPECT_TRUE(eventually([&] { return test.state.calls.count() == 0; }));
  EXPECT_THAT(test.log_text.str(), HasSubstr("rpc=openai.images model=fake"));
}

}  // namespace
}  // namespace runnel
