// Splits the source of a template into tokens: text, and the words of the tags between texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace runnel::jinja {

enum class TokenKind {
  kText,  // outside of tags, after white space control
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kInteger,  // the digits, in Python's notation
  kFloat,
  kString,    // the value, with escapes replaced
  kOperator,  // "+", "==", "[", ...
  kEnd,       // the end of the source
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Splits a source into tokens as Jinja does with trim_blocks and lstrip_blocks; one newline at the
// end is dropped. Throws a Fault with the line: kSyntax if something is not a token, kLimit beyond
// kMaxSourceBytes.
std::vector<Token> tokenize(std::string_view source);

}  // namespace runnel::jinja
