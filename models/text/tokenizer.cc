#include "models/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace runnel {
namespace {

constexpr auto kEncoding = std::chrono::seconds(2);  // for one text

// Calls `between(text)` and `token(value)` for all of `text`, in order. The first status that is
// not OK ends it.
template <typename Between, typename Token>
Status cut(const LiteralTokens& tokens, std::string_view text, Between between, Token token) {
  for (size_t at = 0; at < text.size();) {
    const LiteralTokens::Match match = tokens.find(text, at);
    if (match.begin > at) {
      if (Status s = between(text.substr(at, match.begin - at)); !s.ok()) return s;
    }
    if (match.begin < match.end) token(match.value);
    at = match.end;
  }
  return {};
}

}  // namespace

void LiteralTokens::add(std::string_view text, int32_t value) {
  int32_t node = 0;
  for (const char c : text) {
    const auto [next, is_new] =
        nodes_[static_cast<size_t>(node)].next.try_emplace(c, static_cast<int32_t>(nodes_.size()));
    node = next->second;
    if (is_new) nodes_.emplace_back();
  }
  nodes_[static_cast<size_t>(node)].value = value;
}

LiteralTokens::Match LiteralTokens::find(std::string_view text, size_t from) const {
  Match match{text.size(), text.size()};
  for (size_t begin = from; begin < text.size() && nodes_.size() > 1; ++begin) {
    const Node* node = nodes_.data();
    for (size_t at = begin; at < text.size(); ++at) {
      const auto next = node->next.find(text[at]);
      if (next == node->next.end()) break;
      node = &nodes_[static_cast<size_t>(next->second)];
      if (node->value >= 0) match = {begin, at + 1, node->value};
    }
    if (match.begin == begin) break;
  }
  return match;
}

std::shared_ptr<const Tokenizer> Tokenizer::of_bytes() {
  std::array<int32_t, 256> values{};
  std::vector<std::string> bytes;
  for (int value = 0; value < 256; ++value) {
    values[static_cast<size_t>(value)] = value;
    bytes.emplace_back(1, static_cast<char>(value));
  }
  return std::make_shared<const Tokenizer>(TokenizerParts{.first = {},
                                                          .second = {},
                                                          .patterns = {},
                                                          .words = {},
                                                          .pairs = BytePairs(values),
                                                          .bytes = std::move(bytes)});
}

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  for (const std::string& bytes : parts_.bytes) {
    longest_ = std::max(longest_, static_cast<int64_t>(bytes.size()));
  }
}

std::string_view Tokenizer::bytes(int32_t value) const {
  if (value < 0 || value >= size()) return {};
  return parts_.bytes[static_cast<size_t>(value)];
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size()) {
    return invalid_argument("not valid UTF-8 at byte " + std::to_string(valid));
  }
  const TimePoint deadline = std::chrono::steady_clock::now() + kEncoding;
  std::vector<int32_t> values;
  values.reserve(text.size() / 2);
  const auto token = [&](int32_t value) { values.push_back(value); };
  const auto plain = [&](std::string_view piece) { return encode_plain(piece, deadline, values); };
  Status status = cut(
      parts_.first, text,
      [&](std::string_view piece) { return cut(parts_.second, piece, plain, token); }, token);
  if (!status.ok()) return status;
  return values;
}

// Text without literal tokens, which is not empty.
Status Tokenizer::encode_plain(std::string_view text, TimePoint deadline,
                               std::vector<int32_t>& values) const {
  std::string prefixed;
  if (parts_.add_prefix && !text.starts_with(' ')) {
    prefixed = " " + std::string(text);
    text = prefixed;
  }
  std::vector<std::string_view> pieces{text}, smaller;
  for (const SplitPattern& pattern : parts_.patterns) {
    smaller.clear();
    for (const std::string_view piece : pieces) {
      if (Status s = pattern.split(piece, deadline, smaller); !s.ok()) return s;
    }
    pieces.swap(smaller);
  }
  for (const std::string_view word : pieces) encode_word(word, values);
  return {};
}

void Tokenizer::encode_word(std::string_view word, std::vector<int32_t>& values) const {
  if (!parts_.words.empty()) {
    const auto found = parts_.words.find(std::string(word));
    if (found != parts_.words.end()) {
      values.push_back(found->second);
      return;
    }
  }
  parts_.pairs.encode(word, values);
}

}  // namespace runnel
