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

}  // namespace runnel
