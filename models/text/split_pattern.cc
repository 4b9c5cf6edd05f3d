#include "models/text/split_pattern.h"

#include <pcre2.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
constexpr uint32_t kMatchLimit = 10'000'000;  // steps at one place
constexpr uint32_t kHeapKiB = 64 << 10;       // at one place
// White space as Unicode defines it. PCRE2's own \s also includes U+180E.
constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";

// Reads a pattern once from left to right and writes it for PCRE2.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    if (pattern_.size() > kMaxPatternBytes) {
      return invalid_argument("expected a pattern of at most " + std::to_string(kMaxPatternBytes) +
                              " bytes, found " + std::to_string(pattern_.size()));
    }
    while (at_ < pattern_.size()) {
      const std::string_view refused = in_class_ ? step_in_class() : step();
      if (!refused.empty()) {
        return invalid_argument("expected a pattern without " + quote(refused) +
                                " (it may mean another thing here), found " + quote(pattern_, 200));
      }
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  std::string_view take(size_t count) {
    const std::string_view taken = pattern_.substr(at_, count);
    at_ += taken.size();
    out_ += taken;
    return {};
  }

  // Consumes some of the pattern and returns "", or returns the text that is refused.
  std::string_view step() {
    if (next_is("\\")) return escape();
    if (next_is("[")) {
      in_class_ = true;
      take(next_is("[^") ? 2 : 1);
      return next_is("]") ? pattern_.substr(at_ - 1, 2) : std::string_view();
    }
    if (next_is("(?")) return group();
    for (const std::string_view refused : {"^", "$", "{,", "}+", "}?", "(*"}) {
      if (next_is(refused)) return refused;
    }
    return take(1);
  }

  std::string_view step_in_class() {
    if (next_is("\\")) return escape();
    for (const std::string_view refused : {"[", "&&"}) {
      if (next_is(refused)) return refused;
    }
    if (next_is("]")) in_class_ = false;
    return take(1);
  }

  std::string_view group() {
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (next_is(kind)) return take(kind.size());
    }
    return pattern_.substr(at_, 4);
  }

  std::string_view escape() {
    if (at_ + 1 == pattern_.size()) return pattern_.substr(at_);
    const char letter = pattern_[at_ + 1];
    if (letter == 's') return space();
    if (letter == 'S' && !in_class_) {
      at_ += 2;
      out_ += "[^" + std::string(kSpace) + "]";
      return {};
    }
    if (letter == 'p' || letter == 'P') return property();
    const bool is_word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                         (letter >= 'A' && letter <= 'Z');
    const bool is_known = std::string_view("tnrfdD").find(letter) != std::string_view::npos;
    if (letter <= ' ' || letter > '~' || (is_word && !is_known)) return pattern_.substr(at_, 2);
    return take(2);
  }

  std::string_view space() {
    at_ += 2;
    out_ += in_class_ ? std::string(kSpace) : "[" + std::string(kSpace) + "]";
    return {};
  }

  // Reads a general category: "\p{L}", "\P{Lu}". Names of scripts do not mean the same everywhere.
  std::string_view property() {
    const std::string_view rest = pattern_.substr(at_);
    const size_t end = rest.find('}');
    const bool is_category = rest.size() > 3 && rest[2] == '{' && (end == 4 || end == 5) &&
                             std::string_view("LMNPSZC").find(rest[3]) != std::string_view::npos;
    if (!is_category) return rest.substr(0, end == std::string_view::npos ? 3 : end + 1);
    return take(end + 1);
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// The start of the first character after position `at`.
size_t next_character(std::string_view text, size_t at) {
  do {
    ++at;
  } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

Status out_of_memory() {
  return {Code::kResourceExhausted, "no memory to cut the text into words; try again later"};
}

}  // namespace

Result<SplitPattern> SplitPattern::compile(std::string_view pattern) {
  const Result<std::string> translated = Translator(pattern).run();
  if (!translated.ok()) return translated.status();
  int error = 0;
  size_t offset = 0;
  pcre2_code* const code =
      pcre2_compile(units(*translated), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE, &error,
                    &offset, nullptr);
  if (code == nullptr) {
    std::array<unsigned char, 200> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return invalid_argument("expected a regular expression, found " + quote(pattern, 200) + " (" +
                            printable(reinterpret_cast<const char*>(text.data()), 200) + ")");
  }
  return SplitPattern(std::shared_ptr<const pcre2_code>(
      code, [](const pcre2_code* old) { pcre2_code_free(const_cast<pcre2_code*>(old)); }));
}

const char* SplitPattern::gpt2() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

Status SplitPattern::split(std::string_view text, WorkLimit& limit,
                           std::vector<std::string_view>& pieces) const {
  const MatchContext context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const MatchData match(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  if (context == nullptr || match == nullptr) return out_of_memory();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapKiB);
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) pieces.push_back(text.substr(begin, end - begin));
  };
  size_t done = 0;  // all text before it is in pieces
  // Matches at one place at a time, because PCRE2's limits do not bound a search over all places.
  for (size_t from = 0; from < text.size();) {
    const bool in_time = !limit.is_over();
    const int found = pcre2_match(code_.get(), units(text), text.size(), from,
                                  PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match.get(), context.get());
    if (in_time && found == PCRE2_ERROR_NOMATCH) {
      from = next_character(text, from);
      continue;
    }
    if (found == PCRE2_ERROR_NOMEMORY) return out_of_memory();
    if (!in_time || found < 0) {
      return invalid_argument("the text is too hard to cut into words near byte " +
                              std::to_string(from) + ": give it in smaller parts, or as values");
    }
    const size_t* const place = pcre2_get_ovector_pointer(match.get());
    const size_t begin = place[0], end = place[1];
    add(done, begin);
    add(begin, end);
    done = end;
    from = begin < end ? end : next_character(text, end);
  }
  add(done, text.size());
  return {};
}

}  // namespace runnel
