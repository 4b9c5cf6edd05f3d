// Parses the expressions of a template from its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/template/fault.h"
#include "models/template/lexer.h"
#include "models/template/node.h"

namespace runnel::jinja {

// Reads tokens in order. Every function throws a Fault (kSyntax) with the line if it does not find
// the tokens that it expects.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& token() const { return tokens_[at_]; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_operator(std::string_view text) const {
    return token().kind == TokenKind::kOperator && token().text == text;
  }
  bool is_name(std::string_view text) const {
    return token().kind == TokenKind::kName && token().text == text;
  }
  // Skips the token if it is this operator, or this name. Returns whether it did.
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  [[noreturn]] void refuse(const std::string& what) const;

  // Parse an expression. expression_or_tuple() also accepts a tuple without parentheses.
  Node expression();
  Node expression_or_tuple();
  // Parses an expression without an inline if: the list of a loop.
  Node list_of_loop();
  // Parses filters that follow `value`. The first one has no "|".
  Node filters_of(Node value);
  // Parses the arguments after "(", with the names of keyword arguments.
  void arguments(Node& call);

  // Counts a node. Throws a Fault (kLimit) beyond kMaxNodes.
  Node make(NodeKind kind, int line);
  // Whether the code that is being parsed may never be evaluated. Unknown filters and tests are
  // then not faults.
  bool in_condition = false;

 private:
  // Completes a node that has its operands. Throws a Fault (kLimit) beyond kMaxNesting.
  Node done(Node node) const;
  Node chain(NodeKind kind, Node first, const char* word, Node (ExpressionParser::*operand)());
  Node disjunction();
  Node conjunction();
  Node negation();
  Node comparison();
  Node sum();
  Node concatenation();
  Node product();
  Node unary();
  Node signed_value();
  Node primary();
  Node name();
  Node number();
  Node list();
  Node dict();
  Node parentheses();
  Node postfix(Node node);
  Node subscript(Node object);
  Node subscript_key();
  Node filter_or_test(Node node);
  Node filter(Node value);
  Node test(Node value);
  bool at_end_of_tuple() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t nodes_ = 0;
  int open_ = 0;  // depth of nested expressions that are being parsed
};

}  // namespace runnel::jinja
