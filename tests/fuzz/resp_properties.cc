#include "tests/fuzz/resp_properties.h"

#include <algorithm>

#include "base/check.h"
#include "storage/resp.h"

namespace runnel {
namespace {

constexpr std::string_view kOver = "the bytes are over";

struct ReadReplies {
  std::vector<RespValue> values;
  Status end;

  friend bool operator==(const ReadReplies&, const ReadReplies&) = default;
};

// Reads all replies in these bytes, which arrive `most` at a time.
ReadReplies read_replies(std::string_view bytes, size_t most) {
  RespReader reader([&](std::span<char> to) -> Result<size_t> {
    const size_t count = std::min({bytes.size(), most, to.size()});
    if (count == 0) return Status(Code::kUnavailable, std::string(kOver));
    bytes.copy(to.data(), count);
    bytes.remove_prefix(count);
    return count;
  });
  ReadReplies read;
  for (auto value = reader.next(); read.end.ok(); value = reader.next()) {
    read.end = value.status();
    if (value.ok()) read.values.push_back(std::move(*value));
  }
  return read;
}

}  // namespace

bool check_replies(std::string_view bytes) {
  const ReadReplies read = read_replies(bytes, bytes.size());
  check(read == read_replies(bytes, 1), "replies do not depend on how they are cut");
  if (read.end.code() == Code::kUnavailable) {
    check(read.end.message() == kOver, "the end is that of the bytes");
  } else {
    check(read.end.code() == Code::kDataLoss, "what is no reply is DATA_LOSS");
    check(read.end.message().size() < 500, "an error is one short line");
    check(std::ranges::all_of(read.end.message(), [](char c) { return c >= 0x20 && c < 0x7f; }),
          "an error is printable");
  }
  for (const RespValue& value : read.values) {
    size_t size = value.text.size();
    for (const RespValue& item : value.items) size += item.text.size();
    check(size <= kMostBulkBytes + kMostReplyItems * kMostLineBytes, "a reply is within its limit");
    check(std::ssize(value.items) <= kMostReplyItems, "an array is within its limit");
    check(std::ranges::all_of(value.items, [](const auto& item) { return item.items.empty(); }),
          "the items of an array are no arrays");
  }
  return !read.values.empty();
}

std::vector<std::string> reply_seeds() {
  return {"+OK\r\n+OK\r\n",
          "-OOM command not allowed\r\n",
          ":1\r\n:0\r\n",
          "$5\r\nstate\r\n$-1\r\n",
          "*3\r\n:1764000000000\r\n$11\r\n{\"epoch\":1}\r\n$4\r\nabcd\r\n",
          "*1\r\n:1764000000000\r\n"};
}

std::span<const std::string_view> reply_words() {
  static constexpr std::string_view kWords[] = {
      "\r\n",    "+OK\r\n",    "-ERR no\r\n",   ":-1\r\n",
      "$-1\r\n", "$0\r\n\r\n", "$3\r\nabc\r\n", "*1\r\n",
      "*16\r\n", "*-1\r\n",    "$4198400\r\n",  "9223372036854775808",
      "\n",      "%1\r\n"};
  return kWords;
}

}  // namespace runnel
