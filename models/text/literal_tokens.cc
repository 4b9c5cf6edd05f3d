#include "models/text/literal_tokens.h"

#include <array>
#include <utility>

namespace runnel {
namespace {

// The number of places of a search between two checks of the clock.
constexpr size_t kPlacesAtOnce = 4096;

constexpr std::array<std::string_view, 25> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
    "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
    "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F",
    "\xE3\x80\x80"};

std::vector<std::pair<std::string, int32_t>> texts_of(const std::vector<LiteralToken>& tokens) {
  std::vector<std::pair<std::string, int32_t>> texts;
  for (const LiteralToken& token : tokens) {
    texts.emplace_back(token.text, static_cast<int32_t>(texts.size()));
  }
  return texts;
}

}  // namespace

LiteralTokens::LiteralTokens(std::vector<LiteralToken> tokens)
    : tokens_(std::move(tokens)), trie_(texts_of(tokens_)) {}

LiteralTokens::Match LiteralTokens::longest(std::string_view text, size_t begin,
                                            std::span<const TextRun> runs) const {
  for (size_t most = text.size() - begin; most > 0;) {
    const ByteTrie::Match match = trie_.longest(text.substr(begin, most));
    if (match.length == 0) break;
    const LiteralToken& token = tokens_[static_cast<size_t>(match.value)];
    const size_t end = begin + match.length;
    if (least_trusted(runs, begin, end) <= token.found_in) return {begin, end, &token};
    most = match.length - 1;
  }
  return {begin, begin};
}

std::optional<LiteralTokens::Match> LiteralTokens::find(std::string_view text, size_t from,
                                                        WorkLimit& limit,
                                                        std::span<const TextRun> runs) const {
  const size_t end = empty() ? from : text.size();
  for (size_t begin = from; begin < end; ++begin) {
    const bool looks = (begin - from) % kPlacesAtOnce == 0;
    if (looks && limit.is_over()) return std::nullopt;
    const Match match = longest(text, begin, runs);
    if (match.token != nullptr) return match;
  }
  return Match{text.size(), text.size()};
}

size_t space_at_start(std::string_view text) {
  size_t length = 0;
  for (size_t one = 1; one > 0; length += one) {
    one = 0;
    for (const std::string_view space : kSpaces) {
      if (text.substr(length).starts_with(space)) one = space.size();
    }
  }
  return length;
}

size_t space_at_end(std::string_view text) {
  size_t length = 0;
  for (size_t one = 1; one > 0; length += one) {
    one = 0;
    for (const std::string_view space : kSpaces) {
      if (text.substr(0, text.size() - length).ends_with(space)) one = space.size();
    }
  }
  return length;
}

}  // namespace runnel
