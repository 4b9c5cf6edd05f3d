#include "server/openai/header_text.h"

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

}  // namespace runnel
