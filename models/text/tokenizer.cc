#include "models/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/utf8.h"

namespace runnel {
namespace {

constexpr auto kEncoding = std::chrono::seconds(2);  // for one text
// The clock is looked at once in so many values.
constexpr int kValuesAtOnce = 256;

Status out_of_time() {
  return invalid_argument("the text takes too long: give it in smaller parts, or as values");
}

// Calls `between(text, at_start)` and `token(value)` for all of `text`, in order. The first status
// that is not OK ends it.
template <typename Between, typename Token>
Status cut(const LiteralTokens& tokens, std::string_view text, TimePoint deadline, Between between,
           Token token) {
  size_t done = 0;  // all before it has been given out
  for (size_t from = 0; from < text.size();) {
    const auto match = tokens.find(text, from, deadline);
    if (!match) return out_of_time();
    size_t begin = match->begin;
    if (match->token != nullptr && match->token->takes_space_before && begin > done) {
      begin -= space_at_end(text.substr(done, begin - done));
    }
    if (begin > done) {
      if (Status s = between(text.substr(done, begin - done), done == 0); !s.ok()) return s;
    }
    from = done = match->end;
    if (match->token == nullptr) break;
    token(match->token->value);
    if (match->token->takes_space_after) done += space_at_start(text.substr(done));
  }
  return {};
}

// The longest token that fits, over and over. False past the deadline.
bool encode_longest(const ByteTrie& tokens, std::string_view text, TimePoint deadline,
                    std::vector<int32_t>& values) {
  for (int count = 1; !text.empty(); ++count) {
    const bool looks = count % kValuesAtOnce == 0;
    if (looks && std::chrono::steady_clock::now() >= deadline) return false;
    const ByteTrie::Match match = tokens.longest(text);
    values.push_back(match.value);
    text.remove_prefix(match.length);
  }
  return true;
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::of_bytes() {
  std::array<int32_t, 256> values{};
  std::vector<std::string> bytes;
  for (int value = 0; value < 256; ++value) {
    values[static_cast<size_t>(value)] = value;
    bytes.emplace_back(1, static_cast<char>(value));
  }
  return std::make_shared<const Tokenizer>(
      TokenizerParts{.model = BytePairs(values), .bytes = std::move(bytes)});
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

std::string_view Tokenizer::first_bytes(int32_t value) const {
  std::string_view all = bytes(value);
  if (parts_.drops_first_space && all.starts_with(' ')) all.remove_prefix(1);
  return all;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, TimePoint until) const {
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size()) {
    return invalid_argument("not valid UTF-8 at byte " + std::to_string(valid));
  }
  const TimePoint deadline =
      std::min<TimePoint>(until, std::chrono::steady_clock::now() + kEncoding);
  std::vector<int32_t> values;
  values.reserve(text.size() / 2);
  const auto raw = [&](std::string_view piece, bool at_start) {
    return encode_raw(piece, at_start, deadline, values);
  };
  const auto token = [&](int32_t value) { values.push_back(value); };
  if (Status s = cut(parts_.first, text, deadline, raw, token); !s.ok()) return s;
  return values;
}

// Text without tokens of `first`, which is not empty.
Status Tokenizer::encode_raw(std::string_view text, bool at_start, TimePoint deadline,
                             std::vector<int32_t>& values) const {
  Pieces normalized(text, at_start);
  if (Status s = normalized.take(parts_.normalizer, deadline); !s.ok()) return s;
  const auto plain = [&](std::string_view piece, bool at_start_of_this) {
    return encode_plain(piece, at_start && at_start_of_this, deadline, values);
  };
  const auto token = [&](int32_t value) { values.push_back(value); };
  return cut(parts_.second, normalized.all().front(), deadline, plain, token);
}

// Normalized text without literal tokens, which is not empty.
Status Tokenizer::encode_plain(std::string_view text, bool at_start, TimePoint deadline,
                               std::vector<int32_t>& values) const {
  Pieces words(text, at_start);
  if (Status s = words.take(parts_.words, deadline); !s.ok()) return s;
  for (const std::string_view word : words.all()) {
    if (!encode_word(word, deadline, values)) return out_of_time();
  }
  return {};
}

// False past the deadline.
bool Tokenizer::encode_word(std::string_view word, TimePoint deadline,
                            std::vector<int32_t>& values) const {
  if (const auto* const tokens = std::get_if<ByteTrie>(&parts_.model)) {
    return encode_longest(*tokens, word, deadline, values);
  }
  if (!parts_.whole_words.empty()) {
    const auto found = parts_.whole_words.find(std::string(word));
    if (found != parts_.whole_words.end()) {
      values.push_back(found->second);
      return true;
    }
  }
  return std::get<BytePairs>(parts_.model).encode(word, deadline, values);
}

}  // namespace runnel
