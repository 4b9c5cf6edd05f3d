#include "server/openai/python_calls.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "models/template/python_text.h"

namespace runnel {
namespace {

constexpr int kMaxDepth = 32;  // nesting of lists and dicts
constexpr size_t kMaxMembers =
    1024;  // of a dict or a call: finding a key compares it with all others
constexpr std::string_view kSpaces = " \t\r\n";

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Every function but the last returns false if the text is not as expected.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<std::vector<ToolCall>> calls() {
    std::vector<ToolCall> calls;
    if (!take('[')) return std::nullopt;
    while (!take(']')) {
      if (!calls.empty() && !take(',')) return std::nullopt;
      if (!calls.empty() && take(']')) break;
      if (!call(calls.emplace_back())) return std::nullopt;
    }
    skip_spaces();
    if (at_ != text_.size() || calls.empty()) return std::nullopt;
    return calls;
  }

 private:
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(kSpaces, at_), text_.size()); }

  bool take(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool take(char c) { return take(std::string_view(&c, 1)); }

  // Names of tools may have dots and dashes.
  bool name(std::string& name, std::string_view more) {
    skip_spaces();
    const size_t from = at_;
    while (at_ < text_.size() && (begins_name(text_[at_]) || (at_ > from && is_digit(text_[at_])) ||
                                  (at_ > from && more.find(text_[at_]) != std::string_view::npos)))
      ++at_;
    name = text_.substr(from, at_ - from);
    return !name.empty();
  }

  bool call(ToolCall& call) {
    if (!name(call.name, ".-") || !take('(')) return false;
    OrderedJson arguments = OrderedJson::object();
    while (!take(')')) {
      if (!arguments.empty() && !take(',')) return false;
      if (!arguments.empty() && take(')')) break;
      std::string key;
      if (!name(key, "") || !take('=') || !is_new(arguments, key)) return false;
      if (!value(arguments[key], 0)) return false;
    }
    call.arguments = json_text(arguments);
    return true;
  }

  // Whether a member with that key can be added.
  static bool is_new(const OrderedJson& object, const std::string& key) {
    return object.size() < kMaxMembers && !object.contains(key);
  }

  bool value(OrderedJson& value, int depth) {
    skip_spaces();
    if (depth > kMaxDepth || at_ == text_.size()) return false;
    if (text_[at_] == '\'' || text_[at_] == '"') return string(value);
    if (take('[')) return list(value, depth);
    if (take('{')) return dict(value, depth);
    if (begins_name(text_[at_])) return constant(value);
    return number(value);
  }

  bool constant(OrderedJson& value) {
    std::string word;
    if (!name(word, "")) return false;
    if (word == "True" || word == "true") {
      value = true;
    } else if (word == "False" || word == "false") {
      value = false;
    } else if (word == "None" || word == "null") {
      value = nullptr;
    } else {
      return false;
    }
    return true;
  }

  bool number(OrderedJson& value) {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const std::string digits(text_.substr(at_, end - at_));
    const Result<Json> parsed = parse_json(digits, "a number", {kMaxCallBytes, 1, 1});
    if (!parsed.ok() || !parsed->is_number()) return false;
    value = *parsed;
    at_ = end;
    return true;
  }

  bool list(OrderedJson& value, int depth) {
    value = OrderedJson::array();
    while (!take(']')) {
      if (!value.empty() && !take(',')) return false;
      if (!value.empty() && take(']')) break;
      if (!this->value(value.emplace_back(), depth + 1)) return false;
    }
    return true;
  }

  bool dict(OrderedJson& value, int depth) {
    value = OrderedJson::object();
    while (!take('}')) {
      if (!value.empty() && !take(',')) return false;
      if (!value.empty() && take('}')) break;
      OrderedJson key;
      skip_spaces();
      if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"') || !string(key)) {
        return false;
      }
      if (!take(':') || !is_new(value, key.get_ref<const std::string&>())) return false;
      if (!this->value(value[key.get_ref<const std::string&>()], depth + 1)) return false;
    }
    return true;
  }

  bool string(OrderedJson& value) {
    const char quote = text_[at_++];
    std::string text;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        text += text_[at_++];
      } else if (!escape(text)) {
        return false;
      }
    }
    if (at_ == text_.size()) return false;
    ++at_;
    value = std::move(text);
    return true;
  }

  bool escape(std::string& text) {
    if (++at_ == text_.size()) return false;
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        text += '\n';
        return true;
      case 't':
        text += '\t';
        return true;
      case 'r':
        text += '\r';
        return true;
      case 'x':
        return code(2, text);
      case 'u':
        return code(4, text);
      case 'U':
        return code(8, text);
      case '\\':
      case '\'':
      case '"':
        text += c;
        return true;
      default:  // as in Python: the backslash stays
        text += '\\';
        text += c;
        return true;
    }
  }

  bool code(size_t digits, std::string& text) {
    const std::string_view hex = text_.substr(at_, digits);
    uint32_t code = 0;
    const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    if (hex.size() != digits || read.ptr != hex.data() + hex.size() || code > 0x10FFFF ||
        surrogate) {
      return false;
    }
    at_ += digits;
    jinja::append_code_point(text, static_cast<int32_t>(code));
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text) {
  return Reader(text).calls();
}

}  // namespace runnel
