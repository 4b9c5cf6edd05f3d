#include "models/template/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"
#include "base/utf8.h"
#include "models/template/fault.h"
#include "models/template/limits.h"
#include "models/template/python_text.h"

namespace runnel::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// The source with "\n" for every line end, and without the last line end.
std::string with_plain_lines(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < rest_.size()) next_tag();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Fault{FaultKind::kSyntax, what, line_};
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  std::string_view left() const { return rest_.substr(at_); }
  bool follows(std::string_view text) const { return left().starts_with(text); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < rest_.size() ? rest_[at_ + ahead] : '\0';
  }

  // Moves forward, and counts the lines.
  void skip(size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(left().substr(0, bytes), '\n'));
    at_ += bytes;
  }
  void skip_space() { skip(stripped_begin(left())); }

  // Reads the text up to the next tag, and the tag.
  void next_tag() {
    size_t begin = at_;
    do {
      begin = rest_.find('{', begin);
      if (begin == std::string_view::npos || begin + 1 >= rest_.size()) {
        text_before(rest_.size(), '\0', false);
        return;
      }
      ++begin;
    } while (rest_[begin] != '{' && rest_[begin] != '%' && rest_[begin] != '#');
    const char kind = rest_[begin];
    const char sign = begin + 1 < rest_.size() ? rest_[begin + 1] : '\0';
    const bool signs = sign == '-' || sign == '+';
    text_before(begin - 1, signs ? sign : '\0', kind != '{');
    skip(signs ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    inside(kind == '{');
  }

  // Adds the text before a tag. `lstrip`: drops white space between the start of the line and the
  // tag.
  void text_before(size_t end, char sign, bool lstrip) {
    std::string_view text = rest_.substr(at_, end - at_);
    std::string_view kept = text;
    if (sign == '-') {
      kept = kept.substr(0, stripped_end(kept, 0));
    } else if (sign != '+' && lstrip) {
      const size_t line = kept.rfind('\n') + 1;  // 0 if there is no newline
      const std::string_view last = kept.substr(line);
      if ((line > 0 || line_starts_) && stripped_begin(last) == last.size()) {
        kept = kept.substr(0, line);
      }
    }
    if (!kept.empty()) add(TokenKind::kText, std::string(kept));
    skip(text.size());
    line_starts_ = false;
  }

  // After a tag, "-" drops all white space that follows. Otherwise one newline is dropped if
  // `trimmed`.
  void after_tag(char sign, bool trimmed) {
    const size_t before = at_;
    if (sign == '-') {
      skip_space();
    } else if (trimmed && sign != '+' && peek() == '\n') {
      skip(1);
    }
    line_starts_ = at_ > before && rest_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t end = left().find("#}");
    if (end == std::string_view::npos) refuse("a comment does not end");
    const char sign = end > 0 ? left()[end - 1] : '\0';
    skip(end + 2);
    after_tag(sign, true);
  }

  // If `tag`, the text after "{%" or "{%-", has only `word` in it: the place where the tag ends.
  std::optional<size_t> tag_of_one_word(std::string_view tag, std::string_view word) const {
    size_t i = stripped_begin(tag);
    if (!tag.substr(i).starts_with(word)) return std::nullopt;
    i += word.size();
    i += stripped_begin(tag.substr(i));
    if (tag.substr(i).starts_with("-%}") || tag.substr(i).starts_with("+%}")) return i + 3;
    if (tag.substr(i).starts_with("%}")) return i + 2;
    return std::nullopt;
  }

  // Reads a raw block, whose text stays as it is. Returns false if it is not raw.
  bool raw() {
    const auto head = tag_of_one_word(left(), "raw");
    if (!head || left()[*head - 3] == '+') return false;
    const char sign = left()[*head - 3];
    skip(*head);
    after_tag(sign, false);
    for (size_t end = at_;; ++end) {
      end = rest_.find("{%", end);
      if (end == std::string_view::npos) refuse("the block raw does not end");
      const char before = end + 2 < rest_.size() ? rest_[end + 2] : '\0';
      const size_t begin = end + (before == '-' || before == '+' ? 3 : 2);
      const auto tail = tag_of_one_word(rest_.substr(begin), "endraw");
      if (!tail) continue;
      text_before(end, before == '-' || before == '+' ? before : '\0', true);
      skip(begin - at_);
      const char last = left()[*tail - 3];
      skip(*tail);
      after_tag(last, true);
      return true;
    }
  }

  // Reads the contents of a tag, up to its end.
  void inside(bool print) {
    const std::string_view end = print ? "}}" : "%}";
    std::string open;  // open brackets: the end of a tag does not count within them
    for (;;) {
      skip_space();
      if (at_ >= rest_.size()) refuse(print ? "{{ does not end" : "{% does not end");
      const char sign = peek() == '-' || (peek() == '+' && !print) ? peek() : '\0';
      if (open.empty() && left().substr(sign != '\0' ? 1 : 0).starts_with(end)) {
        add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        skip(sign != '\0' ? 3 : 2);
        return after_tag(sign, !print);
      }
      word(open);
    }
  }

  void word(std::string& open) {
    const char c = peek();
    if (is_letter(c)) {
      size_t end = 0;
      while (is_letter(peek(end)) || is_digit(peek(end))) ++end;
      add(TokenKind::kName, std::string(left().substr(0, end)));
      return skip(end);
    }
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!follows(two)) continue;
      add(TokenKind::kOperator, std::string(two));
      return skip(2);
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      refuse("unexpected " + quote(left().substr(0, code_point_at(left(), 0).bytes)));
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) refuse(std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    skip(1);
  }

  void number() {
    size_t end = 0;
    const auto digits = [&] {
      while (is_digit(peek(end)) || (peek(end) == '_' && is_digit(peek(end + 1)))) ++end;
    };
    if (peek() == '0' && std::string_view("xXoObB").find(peek(1)) != std::string_view::npos &&
        is_hex(peek(2))) {
      end = 2;
      while (is_hex(peek(end)) || peek(end) == '_') ++end;
      std::string all(left().substr(0, end));
      std::erase(all, '_');
      add(TokenKind::kInteger, std::move(all));
      return skip(end);
    }
    digits();
    bool whole = true;
    const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator &&
                           tokens_.back().text == "." && at_ > 0 && rest_[at_ - 1] == '.';
    if (!after_dot && peek(end) == '.' && is_digit(peek(end + 1))) {
      ++end;
      digits();
      whole = false;
    }
    if (!after_dot && (peek(end) == 'e' || peek(end) == 'E')) {
      const size_t sign = peek(end + 1) == '+' || peek(end + 1) == '-' ? 1 : 0;
      if (is_digit(peek(end + 1 + sign))) {
        end += 1 + sign;
        digits();
        whole = false;
      }
    }
    std::string all(left().substr(0, end));
    std::erase(all, '_');
    add(whole ? TokenKind::kInteger : TokenKind::kFloat, std::move(all));
    skip(end);
  }

  void string(char quote) {
    size_t end = 1;
    while (at_ + end < rest_.size() && peek(end) != quote) end += peek(end) == '\\' ? 2 : 1;
    if (at_ + end >= rest_.size()) refuse("a string does not end");
    const int line = line_;
    tokens_.push_back({TokenKind::kString, unescaped(left().substr(1, end - 1)), line});
    skip(end + 1);
  }

  // The code point of `digits` digits at `at`, in base 16 or 8.
  int32_t escaped_number(std::string_view text, size_t at, size_t digits, int base) const {
    int64_t value = 0;
    if (at + digits > text.size()) refuse("an escape in a string is too short");
    for (const char c : text.substr(at, digits)) {
      if (!is_hex(c)) refuse("an escape in a string has a digit " + runnel::quote({&c, 1}));
      value = value * base + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      refuse("an escape in a string is no character");
    }
    return static_cast<int32_t>(value);
  }

  std::string unescaped(std::string_view text) const {
    std::string value;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        value += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (c == '\n') continue;
      if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
        value += kTo[k];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code_point(value, escaped_number(text, i + 1, digits, 16));
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' &&
               text[i + digits] <= '7') {
          ++digits;
        }
        append_code_point(value, escaped_number(text, i, digits, 8));
        i += digits - 1;
      } else if (c == 'N') {
        refuse("names of characters in strings are not supported");
      } else {
        value += '\\';
        value += c;
      }
    }
    return value;
  }

  const std::string source_;
  const std::string_view rest_ = source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // true if nothing but the newline of a tag precedes at_ on its line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (std::ssize(source) > kMaxSourceBytes) {
    throw Fault{FaultKind::kLimit, "the template has " + std::to_string(source.size()) +
                                       " bytes; expected at most " +
                                       std::to_string(kMaxSourceBytes)};
  }
  if (valid_utf8_prefix(source) != source.size()) {
    throw Fault{FaultKind::kSyntax, "the template is not UTF-8"};
  }
  return Lexer(source).run();
}

}  // namespace runnel::jinja
