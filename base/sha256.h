// SHA-256 (FIPS 180-4), computed by OpenSSL.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace runnel {

using Sha256Digest = std::array<uint8_t, 32>;

// The digest of all bytes that have been added, in their order.
class Sha256 {
 public:
  // Throws std::bad_alloc if there is no memory.
  Sha256();
  void add(std::span<const std::byte> bytes);
  // To be called once, after all bytes.
  Sha256Digest finish();

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// The digest of these bytes alone.
Sha256Digest sha256_of(std::span<const std::byte> bytes);

}  // namespace runnel
