#include "storage/record_key.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hex.h"
#include "base/sha256.h"

namespace runnel {

std::string record_key(std::string_view model_digest, std::string_view owner, std::string_view id) {
  Sha256 hash;
  for (const std::string_view text : {model_digest, owner, id}) {
    const uint64_t size = text.size();
    hash.add(std::as_bytes(std::span(&size, 1)));
    hash.add(std::as_bytes(std::span(text)));
  }
  const Sha256Digest digest = hash.finish();
  return hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

bool is_record_key(std::string_view text) {
  return text.size() == 2 * sizeof(Sha256Digest) && bytes_of_hex(text).has_value();
}

}  // namespace runnel
