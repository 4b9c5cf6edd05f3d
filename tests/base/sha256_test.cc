#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/hex.h"

namespace runnel {
namespace {

std::string hex_of(const Sha256Digest& digest) { return hex(as_text(digest)); }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// NIST's published examples for FIPS 180-4.
TEST(Sha256, MatchesTheStandard) {
  EXPECT_EQ(hex_of(sha256_of({})),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256_of(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256_of(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, DoesNotDependOnThePiecesThatAreAdded) {
  const std::string text(1000, 'x');
  for (const size_t first : {0, 1, 63, 64, 65, 999, 1000}) {
    Sha256 hash;
    hash.add(bytes_of(text).first(first));
    hash.add(bytes_of(text).subspan(first));
    EXPECT_EQ(hash.finish(), sha256_of(bytes_of(text))) << first;
  }
}

}  // namespace
}  // namespace runnel
