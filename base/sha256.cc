#include "base/sha256.h"

#include <new>

#include "base/check.h"

namespace runnel {
namespace {

constexpr const char* kWorks = "SHA-256 of memory cannot fail in a working library";

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  // Both calls allocate memory, and fail for no other reason.
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

void Sha256::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, kWorks);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  check(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1, kWorks);
  return digest;
}

Sha256Digest sha256_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

}  // namespace runnel
