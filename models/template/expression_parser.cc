#include "models/template/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/text.h"
#include "models/template/builtins.h"
#include "models/template/limits.h"

namespace runnel::jinja {
namespace {

Value constant_text(const std::string& text) {
  auto value = std::make_shared<Text>(nullptr);
  value->append(text, Writer::kTemplate);
  return Value::Held(std::shared_ptr<const Text>(std::move(value)));
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
    case TokenKind::kBlockEnd:
    case TokenKind::kPrintEnd:
    case TokenKind::kBlockBegin:
    case TokenKind::kPrintBegin:
      return "the end of the tag";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return "a string";
    default:
      return quote(token.text, 40);
  }
}

}  // namespace

void ExpressionParser::refuse(const std::string& what) const {
  throw Fault{FaultKind::kSyntax, what, token().line};
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  next();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) {
    refuse("expected '" + std::string(text) + "', found " + shown(token()));
  }
}

std::string ExpressionParser::expect_name() {
  if (token().kind != TokenKind::kName) refuse("expected a name, found " + shown(token()));
  return next().text;
}

Node ExpressionParser::make(NodeKind kind, int line) {
  if (++nodes_ > kMaxNodes) {
    throw Fault{FaultKind::kLimit, "more than " + std::to_string(kMaxNodes) + " nodes", line};
  }
  return {.kind = kind, .line = line};
}

Node ExpressionParser::done(Node node) const {
  for (const Node& operand : node.operands) node.height = std::max(node.height, operand.height + 1);
  if (node.height > kMaxNesting) {
    throw Fault{FaultKind::kLimit,
                "an expression nests deeper than " + std::to_string(kMaxNesting) + " levels",
                node.line};
  }
  return node;
}

Node ExpressionParser::expression() {
  if (++open_ > kMaxNesting) {
    throw Fault{FaultKind::kLimit,
                "an expression nests deeper than " + std::to_string(kMaxNesting) + " levels",
                token().line};
  }
  Node value = disjunction();
  while (is_name("if")) {
    Node node = make(NodeKind::kInlineIf, next().line);
    const bool before = std::exchange(in_condition, true);
    node.operands.push_back(disjunction());
    node.operands.push_back(std::move(value));
    if (skip_name("else")) node.operands.push_back(expression());
    in_condition = before;
    value = done(std::move(node));
  }
  --open_;
  return value;
}

Node ExpressionParser::list_of_loop() {
  Node first = disjunction();
  if (!is_operator(",")) return first;
  Node tuple = make(NodeKind::kTuple, first.line);
  tuple.operands.push_back(std::move(first));
  while (skip_operator(",") && !at_end_of_tuple()) tuple.operands.push_back(disjunction());
  return done(std::move(tuple));
}

bool ExpressionParser::at_end_of_tuple() const {
  return token().kind == TokenKind::kBlockEnd || token().kind == TokenKind::kPrintEnd ||
         is_operator(")") || is_name("if") || is_name("recursive");
}

Node ExpressionParser::expression_or_tuple() {
  Node first = expression();
  if (!is_operator(",")) return first;
  Node tuple = make(NodeKind::kTuple, first.line);
  tuple.operands.push_back(std::move(first));
  while (skip_operator(",") && !at_end_of_tuple()) tuple.operands.push_back(expression());
  return done(std::move(tuple));
}

// Makes one node for a whole chain of `and`, `or` or "~", so that a long chain is not deep.
Node ExpressionParser::chain(NodeKind kind, Node first, const char* word,
                             Node (ExpressionParser::*operand)()) {
  const auto skip = [&] { return skip_name(word) || skip_operator(word); };
  if (!is_name(word) && !is_operator(word)) return first;
  Node node = make(kind, first.line);
  node.operands.push_back(std::move(first));
  while (skip()) node.operands.push_back((this->*operand)());
  return done(std::move(node));
}

Node ExpressionParser::disjunction() {
  return chain(NodeKind::kOr, conjunction(), "or", &ExpressionParser::conjunction);
}

Node ExpressionParser::conjunction() {
  return chain(NodeKind::kAnd, negation(), "and", &ExpressionParser::negation);
}

Node ExpressionParser::negation() {
  int count = 0;
  const int line = token().line;
  while (skip_name("not")) ++count;
  Node node = comparison();
  for (; count > 0; --count) {
    Node negated = make(NodeKind::kNot, line);
    negated.operands.push_back(std::move(node));
    node = done(std::move(negated));
  }
  return node;
}

Node ExpressionParser::comparison() {
  Node node = make(NodeKind::kCompare, token().line);
  node.operands.push_back(sum());
  for (;;) {
    if (token().kind == TokenKind::kOperator &&
        (token().text == "==" || token().text == "!=" || token().text == "<" ||
         token().text == "<=" || token().text == ">" || token().text == ">=")) {
      node.names.push_back(next().text);
    } else if (skip_name("in")) {
      node.names.push_back("in");
    } else if (is_name("not") && tokens_[at_ + 1].kind == TokenKind::kName &&
               tokens_[at_ + 1].text == "in") {
      at_ += 2;
      node.names.push_back("not in");
    } else {
      break;
    }
    node.operands.push_back(sum());
  }
  if (node.names.empty()) return std::move(node.operands[0]);
  return done(std::move(node));
}

Node ExpressionParser::sum() {
  Node node = make(NodeKind::kArithmetic, token().line);
  node.operands.push_back(concatenation());
  while (is_operator("+") || is_operator("-")) {
    node.names.push_back(next().text);
    node.operands.push_back(concatenation());
  }
  if (node.names.empty()) return std::move(node.operands[0]);
  return done(std::move(node));
}

Node ExpressionParser::concatenation() {
  return chain(NodeKind::kConcat, product(), "~", &ExpressionParser::product);
}

Node ExpressionParser::product() {
  Node node = make(NodeKind::kArithmetic, token().line);
  node.operands.push_back(unary());
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    node.names.push_back(next().text);
    node.operands.push_back(unary());
  }
  if (is_operator("**")) refuse("the operator '**' is not supported");
  if (node.names.empty()) return std::move(node.operands[0]);
  return done(std::move(node));
}

Node ExpressionParser::unary() { return filter_or_test(signed_value()); }

// A sign binds more tightly than a filter, and less tightly than a member.
Node ExpressionParser::signed_value() {
  if (!is_operator("-") && !is_operator("+")) return postfix(primary());
  if (++open_ > kMaxNesting) {
    throw Fault{FaultKind::kLimit, "too many signs in a row", token().line};
  }
  Node node = make(is_operator("-") ? NodeKind::kNegative : NodeKind::kPositive, token().line);
  next();
  node.operands.push_back(signed_value());
  --open_;
  return postfix(done(std::move(node)));
}

Node ExpressionParser::primary() {
  const Token& first = token();
  if (first.kind == TokenKind::kName) return name();
  if (first.kind == TokenKind::kInteger || first.kind == TokenKind::kFloat) return number();
  if (first.kind == TokenKind::kString) {
    Node node = make(NodeKind::kConstant, first.line);
    std::string text;
    while (token().kind == TokenKind::kString) text += next().text;
    node.constant = constant_text(text);
    return node;
  }
  if (is_operator("(")) return parentheses();
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  refuse("expected an expression, found " + shown(first));
}

Node ExpressionParser::name() {
  const Token word = next();
  Node node = make(NodeKind::kConstant, word.line);
  if (word.text == "true" || word.text == "True") {
    node.constant = Value::of(true);
  } else if (word.text == "false" || word.text == "False") {
    node.constant = Value::of(false);
  } else if (word.text == "none" || word.text == "None") {
    node.constant = Value::none();
  } else {
    node.kind = NodeKind::kName;
    node.name = word.text;
  }
  return node;
}

Node ExpressionParser::number() {
  const Token word = next();
  Node node = make(NodeKind::kConstant, word.line);
  if (word.kind == TokenKind::kFloat) {
    node.constant = Value::of(std::strtod(word.text.c_str(), nullptr));
    return node;
  }
  int base = 10;
  std::string_view digits = word.text;
  if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw Fault{FaultKind::kSyntax, "the number " + quote(word.text, 40) + " is too large",
                word.line};
  }
  node.constant = Value::of(value);
  return node;
}

Node ExpressionParser::parentheses() {
  const int line = next().line;
  if (skip_operator(")")) return make(NodeKind::kTuple, line);
  Node node = expression_or_tuple();
  expect_operator(")");
  return node;
}

Node ExpressionParser::list() {
  Node node = make(NodeKind::kList, next().line);
  while (!is_operator("]")) {
    node.operands.push_back(expression());
    if (!is_operator("]")) expect_operator(",");
  }
  next();
  return done(std::move(node));
}

Node ExpressionParser::dict() {
  Node node = make(NodeKind::kDict, next().line);
  while (!is_operator("}")) {
    node.operands.push_back(expression());
    expect_operator(":");
    node.operands.push_back(expression());
    if (!is_operator("}")) expect_operator(",");
  }
  next();
  return done(std::move(node));
}

Node ExpressionParser::postfix(Node node) {
  for (;;) {
    if (is_operator(".")) {
      const int line = next().line;
      Node member = make(NodeKind::kAttribute, line);
      member.operands.push_back(std::move(node));
      if (token().kind == TokenKind::kInteger) {
        member.kind = NodeKind::kItem;
        member.operands.push_back(number());
      } else {
        member.name = expect_name();
      }
      node = done(std::move(member));
    } else if (is_operator("[")) {
      node = subscript(std::move(node));
    } else if (is_operator("(")) {
      Node call = make(NodeKind::kCall, token().line);
      call.operands.push_back(std::move(node));
      arguments(call);
      node = done(std::move(call));
    } else {
      return node;
    }
  }
}

Node ExpressionParser::subscript(Node object) {
  Node node = make(NodeKind::kItem, next().line);
  node.operands.push_back(std::move(object));
  if (is_operator("]")) refuse("expected an expression, found ']'");
  std::optional<Node> start;
  if (!is_operator(":")) start = expression();
  if (!is_operator(":")) {
    node.operands.push_back(std::move(*start));
    expect_operator("]");
    return done(std::move(node));
  }
  node.kind = NodeKind::kSlice;
  node.operands.push_back(start ? std::move(*start) : subscript_key());
  for (int part = 0; part < 2; ++part) {
    const bool there = skip_operator(":") && !is_operator(":") && !is_operator("]");
    node.operands.push_back(there ? expression() : subscript_key());
  }
  expect_operator("]");
  return done(std::move(node));
}

// Makes the node for an absent part of a slice.
Node ExpressionParser::subscript_key() {
  Node node = make(NodeKind::kConstant, token().line);
  node.constant = Value::none();
  return node;
}

void ExpressionParser::arguments(Node& call) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (is_operator("**")) refuse("arguments after '**' are not supported");
    if (is_operator("*") && call.names.empty()) {
      Node spread = make(NodeKind::kSpread, next().line);
      spread.operands.push_back(expression());
      call.operands.push_back(done(std::move(spread)));
      if (!is_operator(")")) expect_operator(",");
      continue;
    }
    const bool keyword = token().kind == TokenKind::kName &&
                         tokens_[at_ + 1].kind == TokenKind::kOperator &&
                         tokens_[at_ + 1].text == "=";
    if (keyword) {
      call.names.push_back(next().text);
      next();
    } else if (!call.names.empty()) {
      refuse("an argument without a name follows one with a name");
    }
    call.operands.push_back(expression());
    if (!is_operator(")")) expect_operator(",");
  }
  next();
}

Node ExpressionParser::filter_or_test(Node node) {
  for (;;) {
    if (skip_operator("|")) {
      node = filter(std::move(node));
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_operator("(")) {
      Node call = make(NodeKind::kCall, token().line);
      call.operands.push_back(std::move(node));
      arguments(call);
      node = done(std::move(call));
    } else {
      return node;
    }
  }
}

Node ExpressionParser::filters_of(Node value) {
  Node node = filter(std::move(value));
  while (skip_operator("|")) node = filter(std::move(node));
  return node;
}

Node ExpressionParser::filter(Node value) {
  Node node = make(NodeKind::kFilter, token().line);
  node.operands.push_back(std::move(value));
  node.name = expect_name();
  if (find_filter(node.name) == nullptr && !in_condition) {
    refuse("there is no filter " + quote(node.name, 40));
  }
  if (is_operator("(")) arguments(node);
  return done(std::move(node));
}

Node ExpressionParser::test(Node value) {
  const int line = next().line;
  const bool negated = skip_name("not");
  Node node = make(NodeKind::kTest, line);
  node.operands.push_back(std::move(value));
  node.name = expect_name();
  if (find_test(node.name) == nullptr && !in_condition) {
    refuse("there is no test " + quote(node.name, 40));
  }
  const TokenKind kind = token().kind;
  const bool word =
      kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and");
  if (is_operator("(")) {
    arguments(node);
  } else if (word || kind == TokenKind::kString || kind == TokenKind::kInteger ||
             kind == TokenKind::kFloat || is_operator("[") || is_operator("{")) {
    if (is_name("is")) refuse("a test cannot follow a test");
    node.operands.push_back(postfix(primary()));
  }
  node = done(std::move(node));
  if (!negated) return node;
  Node opposite = make(NodeKind::kNot, line);
  opposite.operands.push_back(std::move(node));
  return done(std::move(opposite));
}

}  // namespace runnel::jinja
