#include "base/hex.h"

#include <gtest/gtest.h>

#include "base/hash.h"

namespace runnel {
namespace {

TEST(Hex, WritesNumbersAndBytes) {
  EXPECT_EQ(hex(uint64_t{0}), "0000000000000000");
  EXPECT_EQ(hex(0x0123456789abcdefULL), "0123456789abcdef");
  EXPECT_EQ(hex(std::string_view("\x00\x7f\xff", 3)), "007fff");
  EXPECT_EQ(hex(std::string_view()), "");
}

TEST(Hex, ReadsBackEveryByteAndNothingElse) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_hex(hex(bytes)), bytes);
  EXPECT_EQ(bytes_of_hex(""), "");
  for (const char* const wrong : {"0", "0g", "0F", " 0", "0x", "000"}) {
    EXPECT_EQ(bytes_of_hex(wrong), std::nullopt) << wrong;
  }
}

// The hash names the sessions of retried calls and seeds them, so its values must never change.
TEST(Hash, IsFnv1aOf64Bits) {
  EXPECT_EQ(hex(hash_of("")), "cbf29ce484222325");
  EXPECT_EQ(hex(hash_of("a")), "af63dc4c8601ec8c");
  EXPECT_EQ(hex(hash_of("foobar")), "85944171f73967e8");
}

}  // namespace
}  // namespace runnel
