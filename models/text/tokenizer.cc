#include "models/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"

namespace runnel {
namespace {

// The number of values between two checks of the clock.
constexpr int kValuesAtOnce = 256;

Status out_of_time() {
  return invalid_argument("the text takes too long: give it in smaller parts, or as values");
}

// Calls `between(begin, end)` and `token(value)` for all of `text`, in order. Stops at the first
// status that is not OK.
template <typename Between, typename Token>
Status cut(const LiteralTokens& tokens, std::string_view text, std::span<const TextRun> runs,
           WorkLimit& limit, Between between, Token token) {
  size_t done = 0;  // all text before it has been passed on
  for (size_t from = 0; from < text.size();) {
    const auto match = tokens.find(text, from, limit, runs);
    if (!match) return out_of_time();
    size_t begin = match->begin;
    if (match->token != nullptr && match->token->takes_space_before && begin > done) {
      begin -= space_at_end(text.substr(done, begin - done));
    }
    if (begin > done) {
      if (Status s = between(done, begin); !s.ok()) return s;
    }
    from = done = match->end;
    if (match->token == nullptr) break;
    token(match->token->value);
    if (match->token->takes_space_after) done += space_at_start(text.substr(done));
  }
  return {};
}

// Takes the longest token that matches, repeatedly. Returns false if the limit is exceeded.
bool encode_longest(const ByteTrie& tokens, std::string_view text, WorkLimit& limit,
                    std::vector<int32_t>& values) {
  for (int count = 1; !text.empty(); ++count) {
    const bool looks = count % kValuesAtOnce == 0;
    if (looks && limit.is_over()) return false;
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
  for (const LiteralTokens* const tokens : {&parts_.first, &parts_.second}) {
    for (const LiteralToken& token : tokens->all()) {
      if (token.found_in != Writer::kInput) controls_.insert(token.value);
    }
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

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, WorkLimit limit) const {
  return encode(text, {}, limit);
}

Result<std::vector<int32_t>> Tokenizer::encode(const MarkedText& text, WorkLimit limit) const {
  return encode(text.bytes, text.runs, limit);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, std::span<const TextRun> runs,
                                               WorkLimit limit) const {
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size()) {
    return invalid_argument("not valid UTF-8 at byte " + std::to_string(valid));
  }
  std::vector<int32_t> values;
  values.reserve(text.size() / 2);
  const auto raw = [&](size_t begin, size_t end) {
    return encode_raw(part_of(text, runs, begin, end), begin == 0, limit, values);
  };
  const auto token = [&](int32_t value) { values.push_back(value); };
  if (Status s = cut(parts_.first, text, runs, limit, raw, token); !s.ok()) return s;
  return values;
}

// Encodes text that has no tokens of `first` and is not empty.
Status Tokenizer::encode_raw(MarkedText text, bool at_start, WorkLimit& limit,
                             std::vector<int32_t>& values) const {
  for (const PieceChange change : parts_.normalizer) text = changed(change, text, at_start);
  const std::string_view normalized = text.bytes;
  const auto plain = [&](size_t begin, size_t end) {
    return encode_plain(normalized.substr(begin, end - begin), at_start && begin == 0, limit,
                        values);
  };
  const auto token = [&](int32_t value) { values.push_back(value); };
  return cut(parts_.second, normalized, text.runs, limit, plain, token);
}

// Encodes normalized text that has no literal tokens and is not empty.
Status Tokenizer::encode_plain(std::string_view text, bool at_start, WorkLimit& limit,
                               std::vector<int32_t>& values) const {
  Pieces words(text, at_start);
  if (Status s = words.take(parts_.words, limit); !s.ok()) return s;
  for (const std::string_view word : words.all()) {
    if (!encode_word(word, limit, values)) return out_of_time();
  }
  return {};
}

// Returns false if the limit is exceeded.
bool Tokenizer::encode_word(std::string_view word, WorkLimit& limit,
                            std::vector<int32_t>& values) const {
  if (const auto* const tokens = std::get_if<ByteTrie>(&parts_.model)) {
    return encode_longest(*tokens, word, limit, values);
  }
  if (!parts_.whole_words.empty()) {
    const auto found = parts_.whole_words.find(std::string(word));
    if (found != parts_.whole_words.end()) {
      values.push_back(found->second);
      return true;
    }
  }
  return std::get<BytePairs>(parts_.model).encode(word, limit, values);
}

}  // namespace runnel
