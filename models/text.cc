#include "models/text.h"

namespace runnel {

std::string printable(std::string_view text, size_t most) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (text.size() > most) out += "...";
  return out;
}

std::string quote(std::string_view text, size_t most) {
  std::string out = "'";
  out += printable(text, most);
  out += '\'';
  return out;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (const int64_t size : shape) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(size);
  }
  out += ']';
  return out;
}

}  // namespace runnel
