#include "base/field.h"

#include <algorithm>

namespace runnel {
namespace {

// Control characters that occur nowhere else in a message. A field is enclosed in two kPlace, a
// hint in two kHint.
constexpr char kPlace = '\x1f';
constexpr char kHint = '\x1e';

// Appends `text` to `to`, with each field replaced by the door's word for it. Returns false if the
// door lacks a field, whose canonical name is appended instead.
bool append(std::string_view text, const FieldWord& word_of, std::string& to) {
  bool complete = true;
  for (;;) {
    const size_t begin = text.find(kPlace);
    const size_t end = begin == text.npos ? text.npos : text.find(kPlace, begin + 1);
    to += text.substr(0, begin);
    if (end == text.npos) return complete;
    const std::string_view field = text.substr(begin + 1, end - begin - 1);
    const std::string_view word = word_of(field);
    complete = complete && !word.empty();
    to += word.empty() ? field : word;
    text.remove_prefix(end + 1);
  }
}

// The first field in `text`; empty if `text` has no field.
std::string_view field_in(std::string_view text) {
  const size_t begin = text.find(kPlace);
  const size_t end = begin == text.npos ? text.npos : text.find(kPlace, begin + 1);
  return end == text.npos ? std::string_view() : text.substr(begin + 1, end - begin - 1);
}

}  // namespace

std::string_view word_in(std::span<const NamedField> table, std::string_view field) {
  const auto found = std::ranges::find(table, field, &NamedField::field);
  return found == table.end() ? std::string_view() : found->word;
}

std::string place_of(std::string_view field) { return kPlace + std::string(field) + kPlace; }

std::string hint(std::string_view hint) { return kHint + std::string(hint) + kHint; }

std::string rendered(std::string_view message, const FieldWord& word_of) {
  std::string text;
  for (bool in_hint = false;; in_hint = !in_hint) {
    const size_t end = message.find(kHint);
    std::string part;
    const bool complete = append(message.substr(0, end), word_of, part);
    if (complete || !in_hint) text += part;
    if (end == message.npos) return text;
    message.remove_prefix(end + 1);
  }
}

std::string rendered(std::string_view message) {
  return rendered(message, [](std::string_view field) { return field; });
}

std::string_view first_field(std::string_view message) {
  for (bool in_hint = false;; in_hint = !in_hint) {
    const size_t end = message.find(kHint);
    if (!in_hint) {
      const std::string_view field = field_in(message.substr(0, end));
      if (!field.empty()) return field;
    }
    if (end == message.npos) return {};
    message.remove_prefix(end + 1);
  }
}

}  // namespace runnel
