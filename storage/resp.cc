#include "storage/resp.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kFillBytes = 64 << 10;
constexpr std::string_view kLineEnd = "\r\n";

Status no_reply(const std::string& what) { return {Code::kDataLoss, what}; }

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

std::string resp_command(std::span<const std::string_view> words) {
  std::string command = "*" + std::to_string(words.size()) + "\r\n";
  size_t bytes = command.size();
  for (const std::string_view word : words) bytes += word.size() + 32;
  command.reserve(bytes);
  for (const std::string_view word : words) {
    command += "$" + std::to_string(word.size()) + "\r\n";
    command += word;
    command += kLineEnd;
  }
  return command;
}

Status RespReader::fill() {
  buffer_.erase(0, std::exchange(at_, 0));
  const size_t there = buffer_.size();
  buffer_.resize(there + kFillBytes);
  const auto count = fill_(std::span(buffer_).subspan(there));
  buffer_.resize(there + (count.ok() ? *count : 0));
  return count.status();
}

// Reads a line without its end.
Result<std::string> RespReader::line() {
  for (;;) {
    const size_t end = buffer_.find(kLineEnd, at_);
    const size_t size = (end == buffer_.npos ? buffer_.size() : end) - at_;
    if (size > kMostLineBytes) {
      return no_reply("a line of more than " + std::to_string(kMostLineBytes) + " bytes");
    }
    if (end != buffer_.npos) {
      std::string line = buffer_.substr(at_, size);
      at_ = end + kLineEnd.size();
      return line;
    }
    if (Status s = fill(); !s.ok()) return s;
  }
}

Result<RespValue> RespReader::bulk(int64_t size) {
  if (size == -1) return RespValue{};
  if (size < 0 || size > left_) return no_reply("a text of " + std::to_string(size) + " bytes");
  left_ -= size;
  const size_t whole = static_cast<size_t>(size) + kLineEnd.size();
  RespValue value = {.kind = RespKind::kBulk};
  while (value.text.size() < whole) {
    if (!has_more()) {
      if (Status s = fill(); !s.ok()) return s;
    }
    const size_t count = std::min(whole - value.text.size(), buffer_.size() - at_);
    value.text.append(buffer_, at_, count);
    at_ += count;
  }
  if (!value.text.ends_with(kLineEnd)) return no_reply("a text without its end");
  value.text.resize(static_cast<size_t>(size));
  return value;
}

Result<RespValue> RespReader::array(int64_t size) {
  if (size == -1) return RespValue{};
  if (size < 0 || size > kMostReplyItems) {
    return no_reply("an array of " + std::to_string(size) + " items");
  }
  RespValue array = {.kind = RespKind::kArray};
  for (int64_t i = 0; i < size; ++i) {
    auto item = value(true);
    if (!item.ok()) return item;
    array.items.push_back(std::move(*item));
  }
  return array;
}

Result<RespValue> RespReader::value(bool in_array) {
  auto head = line();
  if (!head.ok()) return head.status();
  const char type = head->empty() ? ' ' : head->front();
  std::string text = head->empty() ? "" : head->substr(1);
  if (type == '+') return RespValue{.kind = RespKind::kText, .text = std::move(text)};
  if (type == '-') return RespValue{.kind = RespKind::kError, .text = std::move(text)};
  const auto number = number_of(text);
  const bool is_known = type == ':' || type == '$' || (type == '*' && !in_array);
  if (!is_known || !number) return no_reply("the line " + quote(*head));
  if (type == ':') return RespValue{.kind = RespKind::kNumber, .number = *number};
  return type == '$' ? bulk(*number) : array(*number);
}

Result<RespValue> RespReader::next() {
  left_ = kMostBulkBytes;
  return value(false);
}

}  // namespace runnel
