// The source of a template as tokens: text, and words of the tags between it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace runnel::jinja {

enum class TokenKind {
  kText,  // outside of the tags, white space controlled
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kInteger,  // its digits, in Python's notation
  kFloat,
  kString,    // its value, escapes replaced
  kOperator,  // "+", "==", "[", ...
  kEnd,       // of the source
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Cuts a source into tokens as Jinja does with trim_blocks, lstrip_blocks and one final newline
// dropped. Throws a Fault (kSyntax) with the line for what is no token, and (kLimit) beyond
// kMaxSourceBytes.
std::vector<Token> tokenize(std::string_view source);

}  // namespace runnel::jinja
