// Tokenizer::from_rwkv(): a vocabulary of RWKV, such as rwkv_vocab_v20230424.txt.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "models/text/tokenizer.h"

namespace runnel {
namespace {

constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr int64_t kMaxLineTokenBytes = 1024;

// The number that `text` consists of; -1 if it is not a number.
int64_t whole_number(std::string_view text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

void append_character(uint32_t character, std::string& out) {
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else if (character < 0x800) {
    out += static_cast<char>(0xC0 | character >> 6);
    out += static_cast<char>(0x80 | (character & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | character >> 12);
    out += static_cast<char>(0x80 | (character >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (character & 0x3F));
  }
}

// Reads Python's 'text' or b"bytes", as repr() writes them: \x, \u, \t, \n, \r, \', \\.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {
    is_bytes_ = rest_.starts_with('b');
    if (is_bytes_) rest_.remove_prefix(1);
  }

  // Returns none if this is not such a literal.
  std::optional<std::string> read() {
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (rest_.size() < 2 || (quote != '\'' && quote != '"') || rest_.back() != quote) return {};
    rest_ = rest_.substr(1, rest_.size() - 2);
    while (!rest_.empty()) {
      const char c = take();
      if (c == '\\' ? !escape() : c == quote || (is_bytes_ && (c & 0x80) != 0)) return {};
      if (c != '\\') out_ += c;
    }
    return std::move(out_);
  }

 private:
  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  // Returns false for any other escape.
  bool escape() {
    constexpr std::string_view kNames = "tnr'\\", kMeanings = "\t\n\r'\\";
    if (rest_.empty()) return false;
    const char name = take();
    if (name == 'x' || (name == 'u' && !is_bytes_)) return number(name == 'x' ? 2 : 4);
    const size_t known = kNames.find(name);
    if (known == std::string_view::npos) return false;
    out_ += kMeanings[known];
    return true;
  }

  // Reads a byte, or a character of a string, written with this many digits.
  bool number(size_t digits) {
    uint32_t number = 0;
    const char* const end = rest_.data() + digits;
    if (rest_.size() < digits) return false;
    const auto [read, error] = std::from_chars(rest_.data(), end, number, 16);
    if (error != std::errc() || read != end || (number >= 0xD800 && number < 0xE000)) return false;
    rest_.remove_prefix(digits);
    if (is_bytes_) {
      out_ += static_cast<char>(number);
    } else {
      append_character(number, out_);
    }
    return true;
  }

  std::string_view rest_;
  bool is_bytes_ = false;
  std::string out_;
};

// Removes the first line from `text` and returns it. A line ends with "\n", "\r" or "\r\n", as in
// Python.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find_first_of("\r\n"), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end);
  text.remove_prefix(text.starts_with("\r\n") ? 2 : std::min<size_t>(text.size(), 1));
  return line;
}

class RwkvVocabulary {
 public:
  // `unit` names what a number in an error counts.
  RwkvVocabulary(const std::string& file, const char* unit) : file_(file), unit_(unit) {}

  Result<std::shared_ptr<const Tokenizer>> read(std::string_view text) {
    if (std::ssize(text) > kMaxBytes) {
      return invalid_argument(file_ + ": expected at most " + std::to_string(kMaxBytes) +
                              " bytes, found " + std::to_string(text.size()));
    }
    for (int64_t line = 1; !text.empty(); ++line) {
      if (Status s = read_line(take_line(text), line); !s.ok()) return s;
    }
    return tokenizer({});
  }

  Result<std::shared_ptr<const Tokenizer>> read(
      std::span<const std::pair<int32_t, std::string_view>> tokens, std::vector<int32_t> begin) {
    for (const auto& [value, text] : tokens) {
      if (Status s = read_token(text, value); !s.ok()) return s;
    }
    return tokenizer(std::move(begin));
  }

 private:
  Result<std::shared_ptr<const Tokenizer>> tokenizer(std::vector<int32_t> begin) {
    for (int byte = 0; byte < 256; ++byte) {
      if (known_.contains(std::string(1, static_cast<char>(byte)))) continue;
      return invalid_argument(file_ +
                              ": expected a token for each single byte, found none for byte " +
                              std::to_string(byte));
    }
    return std::make_shared<const Tokenizer>(TokenizerParts{.model = ByteTrie(std::move(tokens_)),
                                                            .bytes = std::move(bytes_),
                                                            .begin = std::move(begin),
                                                            .end = {0}});
  }

  Status fault(int64_t line, const std::string& expected, std::string_view found) const {
    return invalid_argument(file_ + ": " + unit_ + " " + std::to_string(line) + ": expected " +
                            expected + ", found " + quote(found));
  }

  // "261 '\n\n' 2". The literal may have spaces.
  Status read_line(std::string_view text, int64_t line) {
    const size_t first = text.find(' '), last = text.rfind(' ');
    if (first == std::string_view::npos || first == last) {
      return fault(line, "a value, a literal and its length, with spaces between them", text);
    }
    const int64_t value = whole_number(text.substr(0, first));
    if (value < 1 || value >= kMaxVocabulary) {
      return fault(line, "a value from 1 to " + std::to_string(kMaxVocabulary - 1),
                   text.substr(0, first));
    }
    const std::string_view literal = text.substr(first + 1, last - first - 1);
    const std::optional<std::string> token = Literal(literal).read();
    if (!token) {
      return fault(line, R"(a literal of Python with no escapes but \x \u \t \n \r \' \\)",
                   literal);
    }
    if (token->empty() || std::ssize(*token) > kMaxLineTokenBytes ||
        whole_number(text.substr(last + 1)) != std::ssize(*token)) {
      return fault(
          line, "1 to " + std::to_string(kMaxLineTokenBytes) + " bytes, as many as the line says",
          std::to_string(token->size()) + " bytes and the length " +
              std::string(text.substr(last + 1)));
    }
    return add(*token, static_cast<size_t>(value), line);
  }

  // repr() uses double quotes for text that has single quotes and no double quotes.
  Status read_token(std::string_view text, int32_t value) {
    const bool is_double = text.find('\'') != text.npos && text.find('"') == text.npos;
    const char* const quote = is_double ? "\"" : "'";
    const std::optional<std::string> token =
        Literal("b" + (quote + std::string(text)) + quote).read();
    if (!token || token->empty() || std::ssize(*token) > kMaxLineTokenBytes) {
      return fault(value,
                   "1 to " + std::to_string(kMaxLineTokenBytes) +
                       R"( bytes of ASCII with no escapes but \x \t \n \r \' \\)",
                   text);
    }
    return add(*token, static_cast<size_t>(value), value);
  }

  Status add(const std::string& token, size_t value, int64_t line) {
    if (value >= bytes_.size()) bytes_.resize(value + 1);
    if (!bytes_[value].empty()) {
      return fault(line, "a value of its own", std::to_string(value) + " a second time");
    }
    if (!known_.insert(token).second) {
      return fault(line, "a token of its own", token + " a second time");
    }
    bytes_[value] = token;
    tokens_.emplace_back(token, static_cast<int32_t>(value));
    return {};
  }

  const std::string& file_;
  const char* const unit_;
  std::vector<std::pair<std::string, int32_t>> tokens_;
  std::vector<std::string> bytes_;
  std::unordered_set<std::string> known_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_rwkv(std::string_view vocabulary,
                                                              const std::string& file) {
  return RwkvVocabulary(file, "line").read(vocabulary);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_rwkv_tokens(
    std::span<const std::pair<int32_t, std::string_view>> tokens, std::vector<int32_t> begin,
    const std::string& file) {
  return RwkvVocabulary(file, "token").read(tokens, std::move(begin));
}

}  // namespace runnel
