#include "server/grpc/wire.h"

#include <gtest/gtest.h>

#include "runnel/v1/fault.pb.h"
#include "runnel/v1/sessions.pb.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

constexpr int kField = v1::ImportSessionRequest::kDataFieldNumber;

std::string text_of(const std::vector<grpc::Slice>& slices) {
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

std::string found_in(const std::string& message) {
  return text_of(bytes_of_message(bytes_of(message), kField));
}

// A message with only the data field, as every client encodes it.
std::string with_data(const std::string& data) {
  v1::ImportSessionRequest request;
  request.set_data(data);
  return request.SerializeAsString();
}

TEST(Wire, EncodesBytesLikeTheLibrary) {
  for (const size_t size : {0, 1, 127, 128, 300'000}) {
    const std::string data(size, 'd');
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(bytes_message(kField, data).Dump(&slices).ok());
    EXPECT_EQ(text_of(slices), with_data(data)) << size;
  }
}

TEST(Wire, FindsTheBytesInAMessage) {
  for (const size_t size : {1, 127, 128, 300'000}) {
    const std::string data(size, 'd');
    EXPECT_EQ(found_in(with_data(data)), data) << size;
  }
  const std::string message = with_data(std::string(200, 'd'));
  for (size_t first = 0; first < 6; ++first) {
    const std::vector<grpc::Slice> slices = {message.substr(0, first), message.substr(first, 1),
                                             message.substr(first + 1)};
    const grpc::ByteBuffer bytes(slices.data(), slices.size());
    EXPECT_EQ(text_of(bytes_of_message(bytes, kField)), std::string(200, 'd')) << first;
  }
}

TEST(Wire, LeavesOtherMessagesToTheParser) {
  v1::ImportSessionRequest target;
  target.mutable_target()->set_id("a");
  const std::string message = with_data("data");
  EXPECT_EQ(found_in(""), "");
  EXPECT_EQ(found_in(target.SerializeAsString()), "");
  EXPECT_EQ(found_in(with_data("")), "");
  EXPECT_EQ(found_in(message + message), "");
  EXPECT_EQ(found_in(message + "x"), "");
  EXPECT_EQ(found_in(message.substr(0, message.size() - 1)), "");
  EXPECT_EQ(found_in(std::string("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)), "");
  EXPECT_TRUE(bytes_of_message(grpc::ByteBuffer(), kField).empty());
}

// A client drops the hint if it has no such field.
TEST(Wire, AHintIsSentWithItsFieldIfNoFieldIsAtFault) {
  const grpc::Status status =
      to_grpc(invalid_argument("full" + hint(", or set " + place_of("max_queue_time"))));
  EXPECT_EQ(status.error_message(), "full, or set max_queue_time");
  v1::StatusDetails details;
  v1::Fault fault;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&fault));
  EXPECT_EQ(fault.field(), "");
  EXPECT_EQ(rendered(fault.message(), [](std::string_view) { return ""; }), "full");
}

}  // namespace
}  // namespace runnel
