#include "base/base64.h"

#include <openssl/evp.h>

namespace runnel {

std::string base64(std::span<const uint8_t> bytes) {
  std::string text(static_cast<size_t>(base64_length(std::ssize(bytes))) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));  // without the zero at the end
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const bool has_others =
      text.substr(0, text.size() - padding).find_first_not_of(kDigits) != std::string_view::npos;
  if (text.size() % 4 != 0 || text.size() > INT32_MAX || has_others) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                  reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace runnel
