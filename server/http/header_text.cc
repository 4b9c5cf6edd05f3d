#include "server/http/header_text.h"

#include <algorithm>
#include <optional>

#include "base/hex.h"

namespace runnel {

std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return lowered;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string unescaped(std::string_view part) {
  std::string text;
  while (!part.empty()) {
    const auto byte = part.front() == '%' ? bytes_of_hex(lower(part.substr(1, 2))) : std::nullopt;
    const bool escaped = byte && byte->size() == 1;
    text += escaped ? byte->front() : part.front();
    part.remove_prefix(escaped ? 3 : 1);
  }
  return text;
}

std::string query_of(std::string_view target, std::string_view name) {
  target.remove_prefix(std::min(target.size(), target.find('?')));
  while (!target.empty()) {
    target.remove_prefix(1);
    const std::string_view pair = target.substr(0, target.find('&'));
    target.remove_prefix(pair.size());
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) {
      return unescaped(pair.substr(name.size() + 1));
    }
  }
  return "";
}

}  // namespace runnel
