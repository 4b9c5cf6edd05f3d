#include "storage/record_key.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/hex.h"
#include "base/limits.h"
#include "base/sha256.h"

namespace runnel {

namespace {

// The hexadecimal digits of a hash of texts.
std::string digits_of(std::initializer_list<std::string_view> texts) {
  Sha256 hash;
  for (const std::string_view text : texts) {
    const uint64_t size = text.size();
    hash.add(std::as_bytes(std::span(&size, 1)));
    hash.add(std::as_bytes(std::span(text)));
  }
  const Sha256Digest digest = hash.finish();
  return hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace

std::string record_key(std::string_view model_digest, std::string_view owner, std::string_view id) {
  return digits_of({model_digest, owner, id});
}

bool is_record_key(std::string_view text) {
  return text.size() == 2 * sizeof(Sha256Digest) && bytes_of_hex(text).has_value();
}

std::string record_list(std::string_view model_digest, std::string_view owner) {
  return digits_of({model_digest, owner}).substr(0, kListNameLength);
}

bool is_record_list(std::string_view text) {
  return text.size() == kListNameLength && bytes_of_hex(text).has_value();
}

bool is_listed_id(std::string_view id) {
  constexpr std::string_view kOthers = "._:-";
  const bool is_plain = std::ranges::all_of(id, [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != kOthers.npos;
  });
  return is_plain && !id.empty() && std::ssize(id) <= kMaxNameLength;
}

}  // namespace runnel
