// Replies of Redis: their forms, and the bounds of each.
#include "storage/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace runnel {
namespace {

using ::testing::HasSubstr;

// A reader of these bytes, which arrive `most` at a time and then end.
RespReader reader_of(std::string bytes, size_t most = 100000) {
  return RespReader([bytes = std::move(bytes), most,
                     at = size_t{0}](std::span<char> to) mutable -> Result<size_t> {
    const size_t count = std::min({bytes.size() - at, most, to.size()});
    if (count == 0) return Status(Code::kUnavailable, "nothing more comes");
    bytes.copy(to.data(), count, at);
    at += count;
    return count;
  });
}

TEST(Resp, RepliesAreReadHoweverTheyAreCut) {
  for (const size_t most : {1, 2, 3, 100}) {
    RespReader reader = reader_of(
        "+OK\r\n-ERR no\r\n:-42\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n*-1\r\n"
        "*3\r\n:1\r\n$1\r\nx\r\n$-1\r\n*0\r\n",
        most);
    EXPECT_EQ(*reader.next(), (RespValue{.kind = RespKind::kText, .text = "OK"}));
    EXPECT_EQ(*reader.next(), (RespValue{.kind = RespKind::kError, .text = "ERR no"}));
    EXPECT_EQ(*reader.next(), (RespValue{.kind = RespKind::kNumber, .number = -42}));
    EXPECT_EQ(*reader.next(), (RespValue{.kind = RespKind::kBulk, .text = "a\r\nbc"}));
    EXPECT_EQ(*reader.next(), RespValue{.kind = RespKind::kBulk});
    EXPECT_EQ(*reader.next(), RespValue{});
    EXPECT_EQ(*reader.next(), RespValue{});
    EXPECT_EQ(reader.next()->items.size(), 3U);
    EXPECT_EQ(*reader.next(), RespValue{.kind = RespKind::kArray});
    EXPECT_FALSE(reader.has_more());
    EXPECT_EQ(reader.next().status().code(), Code::kUnavailable);
  }
}

TEST(Resp, InvalidAndLargeRepliesAreRefused) {
  const std::string line(kMostLineBytes + 2, 'x');
  for (const auto& [bytes, reason] :
       {std::pair<std::string, std::string>("HTTP/1.1 200 OK\r\n", "the line 'HTTP/1.1 200 OK'"),
        {"\r\n", "the line ''"},
        {":1x\r\n", "the line ':1x'"},
        {":\r\n", "the line ':'"},
        {":99999999999999999999\r\n", "the line"},
        {"$-2\r\n", "a text of -2 bytes"},
        {"$4198401\r\n", "a text of 4198401 bytes"},
        {"$9223372036854775807\r\n", "a text of 9223372036854775807 bytes"},
        {"$1\r\nxyz", "a text without its end"},
        {"*2\r\n$2\r\nab\r\n$4198399\r\n", "a text of 4198399 bytes"},
        {"*17\r\n", "an array of 17 items"},
        {"*-2\r\n", "an array of -2 items"},
        {"*1\r\n*1\r\n:1\r\n", "the line '*1'"},
        {"+" + line + "\r\n", "a line of more than 4096 bytes"},
        {"+" + line, "a line of more than 4096 bytes"},
        {"%1\r\n", "the line '%1'"}}) {
    const Status status = reader_of(bytes).next().status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << bytes.substr(0, 50);
    EXPECT_THAT(status.message(), HasSubstr(reason));
  }
  const std::string most(static_cast<size_t>(kMostBulkBytes), 'x');
  EXPECT_EQ(reader_of("$4198400\r\n" + most + "\r\n").next()->text.size(), most.size());
  EXPECT_EQ(reader_of("$4198400\r\n" + most).next().status().code(), Code::kUnavailable);
}

TEST(Resp, ACommandIsAnArrayOfItsWords) {
  const std::string_view words[] = {"SET", "a b", std::string_view("\0\r\n", 3), ""};
  const std::string command = resp_command(words);
  EXPECT_EQ(command, std::string("*4\r\n$3\r\nSET\r\n$3\r\na b\r\n$3\r\n\0\r\n\r\n$0\r\n\r\n", 37));
}

}  // namespace
}  // namespace runnel
