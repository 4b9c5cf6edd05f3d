// Vocabularies of RWKV. tokenizer_test.cc tests how they encode text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "models/text/tokenizer.h"

namespace runnel {
namespace {

std::string line_of(int byte) {
  char line[32];
  std::snprintf(line, sizeof(line), "%d b'\\x%02x' 1\n", byte + 1, static_cast<unsigned>(byte));
  return line;
}

// All single bytes, as values from 1 to 256, and additional lines.
std::string vocabulary_with(std::string_view lines) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += line_of(byte);
  return text + std::string(lines);
}

TEST(RwkvVocabulary, LiteralsAreReadLikePythons) {
  const auto tokenizer =
      Tokenizer::from_rwkv(vocabulary_with("300 ' a b ' 5\n"
                                           "301 \"it's\" 4\n"
                                           "302 '\\xe9\\u5ddd\\t\\n\\r\\'\\\\' 10\n"
                                           "303 b'\\xe9\\xff' 2\n"
                                           "304 '\u5ddd' 3\n"
                                           "305 '\\u00e9' 2"),
                           "v.txt");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->size(), 306);
  EXPECT_EQ((*tokenizer)->bytes(300), " a b ");
  EXPECT_EQ((*tokenizer)->bytes(301), "it's");
  EXPECT_EQ((*tokenizer)->bytes(302), "\u00e9\u5ddd\t\n\r'\\");
  EXPECT_EQ((*tokenizer)->bytes(303), "\xe9\xff");
  EXPECT_EQ((*tokenizer)->bytes(304), "\u5ddd");
  EXPECT_EQ((*tokenizer)->bytes(305), "\u00e9");
  EXPECT_EQ((*tokenizer)->bytes(0), "");
  EXPECT_EQ((*tokenizer)->bytes(299), "");
  EXPECT_EQ(*(*tokenizer)->encode("it's \u5ddda b "),
            (std::vector<int32_t>{301, 0x21, 304, 'a' + 1, 0x21, 'b' + 1, 0x21}));
}

// Git on Windows writes files with such line ends.
TEST(RwkvVocabulary, LinesEndAsInPython) {
  const std::string text = vocabulary_with("300 'a b' 3\n301 '\\r\\n' 2");
  for (const char* end : {"\r\n", "\r"}) {
    std::string other;
    for (const char c : text) other += c == '\n' ? std::string(end) : std::string(1, c);
    for (const char* last : {"", end}) {
      const auto tokenizer = Tokenizer::from_rwkv(other + last, "v.txt");
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
      EXPECT_EQ((*tokenizer)->size(), 302);
      EXPECT_EQ((*tokenizer)->bytes(300), "a b");
      EXPECT_EQ((*tokenizer)->bytes(301), "\r\n");
    }
  }
}

TEST(RwkvVocabulary, RefusesMalformedLines) {
  struct Case {
    const char* line;
    const char* message;
  };
  for (const Case& one : {
           Case{"300", "line 257: expected a value, a literal and its length"},
           Case{"300 'a'", "line 257: expected a value, a literal and its length"},
           Case{"", "line 257: expected a value, a literal and its length"},
           Case{"0 'aa' 2", "line 257: expected a value from 1 to 1048575, found '0'"},
           Case{"1048576 'aa' 2", "expected a value from 1 to 1048575"},
           Case{"x 'aa' 2", "expected a value from 1 to 1048575, found 'x'"},
           Case{"300 aa 2", "expected a literal of Python"},
           Case{"300 'aa\" 2", "expected a literal of Python"},
           Case{"300 ' 1", "expected a literal of Python"},
           Case{"300 'a'a' 3", "expected a literal of Python"},
           Case{"300 u'aa' 2", "expected a literal of Python"},
           Case{"300 'aa\\' 2", "expected a literal of Python"},
           Case{"300 '\\a' 1", "expected a literal of Python"},
           Case{"300 '\\\"' 1", "expected a literal of Python"},
           Case{"300 '\\101' 1", "expected a literal of Python"},
           Case{"300 '\\x1' 1", "expected a literal of Python"},
           Case{"300 '\\x+1' 1", "expected a literal of Python"},
           Case{"300 '\\ud800' 3", "expected a literal of Python"},
           Case{"300 b'\\u5ddd' 3", "expected a literal of Python"},
           Case{"300 b'\u5ddd' 3", "expected a literal of Python"},
           Case{"300 'aa' 3", "as many as the line says, found '2 bytes and the length 3'"},
           Case{"300 '' 0", "expected 1 to 1024 bytes"},
           Case{"256 'aa' 2", "expected a value of its own, found '256 a second time'"},
           Case{"300 'a' 1", "expected a token of its own, found 'a a second time'"},
       }) {
    const auto tokenizer =
        Tokenizer::from_rwkv(vocabulary_with(std::string(one.line) + "\n"), "v.txt");
    ASSERT_FALSE(tokenizer.ok()) << one.line;
    EXPECT_EQ(tokenizer.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(tokenizer.status().message(), testing::StartsWith("v.txt: line 257: ")) << one.line;
    EXPECT_THAT(tokenizer.status().message(), testing::HasSubstr(one.message));
  }
  EXPECT_EQ(Tokenizer::from_rwkv(line_of(0), "v.txt").status().message(),
            "v.txt: expected a token for each single byte, found none for byte 1");
  EXPECT_THAT(Tokenizer::from_rwkv(std::string((16 << 20) + 1, 'a'), "v.txt").status().message(),
              testing::HasSubstr("expected at most 16777216 bytes"));
}

}  // namespace
}  // namespace runnel
