#include "server/grpc/parsed_size.h"

#include <gtest/gtest.h>

#include <random>

#include "runnel/v1/inference.pb.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

int64_t size_of(const std::string& text) {
  return parsed_size(bytes_of(text), v1::GenerateRequest::default_instance(), INT64_MAX);
}

// The result is at least the size of the parsed message, as the library reports it.
void expect_covers(const std::string& text) {
  v1::GenerateRequest message;
  const bool parses = message.ParseFromString(text);
  EXPECT_GE(size_of(text), static_cast<int64_t>(message.SpaceUsedLong())) << parses;
}

std::string repeated(const std::string& bytes, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += bytes;
  return text;
}

TEST(ParsedSize, EmptyStopSequencesAreCounted) {
  const std::string stops = repeated(std::string("\x4a\x00", 2), 100'000);  // stop = 9, empty
  expect_covers(stops);
  EXPECT_GT(size_of(stops), 100'000 * 40);
}

TEST(ParsedSize, CoversTheMemoryOfParsedFields) {
  v1::GenerateRequest request;
  request.set_model(std::string(3000, 'm'));
  for (int i = 0; i < 5000; ++i) request.mutable_values()->add_values(i % 200);
  request.add_stop_text("");
  request.add_stop_text(std::string(100, 's'));
  request.mutable_origin()->set_session("a");
  for (int i = 0; i < 5000; ++i) (*request.mutable_sampling()->mutable_logit_bias())[i] = 1.0F;
  expect_covers(request.SerializeAsString());
  for (int i = 0; i < 500; ++i) {
    v1::Conversation& conversation = *request.mutable_conversation();
    v1::ChatMessage& message = *conversation.add_messages();
    message.set_role("assistant");
    message.set_content("");
    message.add_tool_calls()->set_arguments("{}");
    conversation.add_tools("{}");
    conversation.add_variables()->set_name(std::to_string(i));
  }
  expect_covers(request.SerializeAsString());
  expect_covers(
      std::string(1, static_cast<char>(v1::GenerateRequest::kSamplingFieldNumber << 3 | 2)));
  expect_covers(repeated(std::string("\x7a\x00", 2), 5000));          // stop_text, empty
  expect_covers(repeated(std::string("\x1a\x02\x08\x01", 4), 5000));  // values, one by one
  expect_covers(repeated(std::string("\xf8\x7f\x01", 3), 5000));      // an unknown number
  expect_covers(repeated(std::string("\xfa\x7f\x00", 3), 5000));      // an unknown string
  expect_covers(repeated(std::string("\x08\x00", 2), 5000));  // a string's number, as a number
  expect_covers(repeated("\x0b\x0c", 5000));                  // ... as an empty group
  expect_covers("\xfb\x7f" + repeated("\x08\x01", 5000) + "\xfc\x7f");  // a group
}

TEST(ParsedSize, StopsCountingAtTheGivenBound) {
  const std::string stops = repeated(std::string("\x4a\x00", 2), 100'000);
  const int64_t size =
      parsed_size(bytes_of(stops), v1::GenerateRequest::default_instance(), 10'000);
  EXPECT_GT(size, 10'000);
  EXPECT_LT(size, 20'000);
}

TEST(ParsedSize, AnOrdinaryRequestIsSmall) {
  EXPECT_LT(size_of(generate_request({1, 2, 3}, 10).SerializeAsString()), 2000);
}

TEST(ParsedSize, CoversTheMemoryOfDamagedMessages) {
  std::mt19937 random(7);
  const std::string whole = generate_request({1, 2, 3}, 10).SerializeAsString();
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole + whole;
    for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % (text.size() + 1));
    expect_covers(text);
  }
}

TEST(ParsedSize, BoundsTheDepthOfGroups) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "\xfb\x7f";  // groups in groups
  EXPECT_GT(size_of(text), 0);
}

}  // namespace
}  // namespace runnel
