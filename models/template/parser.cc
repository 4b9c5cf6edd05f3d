#include "models/template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/text.h"
#include "models/template/expression_parser.h"
#include "models/template/limits.h"

namespace runnel::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : words_(tokenize(source)) {}

  std::vector<Node> run() {
    std::vector<Node> all = body({});
    if (words_.token().kind != TokenKind::kEnd) {
      words_.refuse("unexpected " + quote(words_.token().text, 40));
    }
    return all;
  }

 private:
  // Reads statements up to a tag that begins with one of `ends`, and stops at the name of that tag.
  std::vector<Node> body(std::initializer_list<std::string_view> ends) {
    if (++level_ > kMaxNesting) {
      throw Fault{FaultKind::kLimit,
                  "blocks nest deeper than " + std::to_string(kMaxNesting) + " levels",
                  words_.token().line};
    }
    std::vector<Node> all;
    for (;;) {
      const Token token = words_.token();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0) words_.refuse("expected " + std::string(*ends.begin()));
        break;
      }
      words_.next();
      if (token.kind == TokenKind::kText) {
        Node node = words_.make(NodeKind::kText, token.line);
        auto text = std::make_shared<Text>(nullptr);
        text->append(token.text, Writer::kTemplate);
        node.constant = Value::Held(std::shared_ptr<const Text>(std::move(text)));
        all.push_back(std::move(node));
      } else if (token.kind == TokenKind::kPrintBegin) {
        Node node = words_.make(NodeKind::kPrint, token.line);
        node.operands.push_back(words_.expression_or_tuple());
        end_of_print();
        all.push_back(std::move(node));
      } else {
        const bool ended = words_.token().kind == TokenKind::kName &&
                           std::ranges::find(ends, words_.token().text) != ends.end();
        if (ended) break;
        all.push_back(statement());
      }
    }
    --level_;
    return all;
  }

  void end_of_print() {
    if (words_.token().kind != TokenKind::kPrintEnd) {
      words_.refuse("expected '}}', found " + quote(words_.token().text, 40));
    }
    words_.next();
  }

  void end_of_block() {
    if (words_.token().kind != TokenKind::kBlockEnd) {
      words_.refuse("expected '%}', found " + quote(words_.token().text, 40));
    }
    words_.next();
  }

  // Reads the body up to `end`, and the tag that ends it.
  std::vector<Node> whole_body(std::string_view end) {
    end_of_block();
    std::vector<Node> all = body({end});
    words_.next();
    end_of_block();
    return all;
  }

  Node statement() {
    const int line = words_.token().line;
    const std::string word = words_.expect_name();
    if (word == "if") return if_block(line);
    if (word == "for") return for_block(line);
    if (word == "set") return set(line);
    if (word == "macro") return macro(line);
    if (word == "call") return call_block(line);
    if (word == "filter") {
      Node node = words_.make(NodeKind::kFilterBlock, line);
      node.operands.push_back(words_.filters_of(words_.make(NodeKind::kCaptured, line)));
      node.body = whole_body("endfilter");
      return node;
    }
    if (word == "generation") {
      Node node = words_.make(NodeKind::kGeneration, line);
      node.body = apart([&] { return whole_body("endgeneration"); });
      return node;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) words_.refuse(word + " is outside of a loop");
      Node node = words_.make(word == "break" ? NodeKind::kBreak : NodeKind::kContinue, line);
      end_of_block();
      return node;
    }
    throw Fault{FaultKind::kSyntax, "the tag " + quote(word, 40) + " is not supported", line};
  }

  // Reads a body that no break can leave.
  template <typename Parse>
  std::vector<Node> apart(const Parse& parse_body) {
    const int loops = std::exchange(loops_, 0);
    std::vector<Node> all = parse_body();
    loops_ = loops;
    return all;
  }

  Node if_block(int line) {
    Node node = words_.make(NodeKind::kIf, line);
    const bool before = std::exchange(words_.in_condition, true);
    std::string word = "if";
    while (word != "endif") {
      Node branch = words_.make(NodeKind::kBranch, words_.token().line);
      if (word != "else") branch.operands.push_back(words_.expression_or_tuple());
      end_of_block();
      branch.body = word == "else" ? body({"endif"}) : body({"elif", "else", "endif"});
      node.body.push_back(std::move(branch));
      word = words_.next().text;
    }
    words_.in_condition = before;
    end_of_block();
    return node;
  }

  // "a" or "a, b", with or without parentheses.
  std::vector<std::string> targets() {
    const bool open = words_.skip_operator("(");
    std::vector<std::string> names = {target()};
    bool several = false;
    while (words_.skip_operator(",")) {
      several = true;
      if (words_.token().kind != TokenKind::kName || words_.is_name("in")) break;
      names.push_back(target());
    }
    if (open) words_.expect_operator(")");
    if (several && names.size() == 1) names.emplace_back();  // "a,": a tuple of one
    return names;
  }

  std::string target() {
    const std::string name = words_.expect_name();
    for (const char* word :
         {"true", "false", "none", "True", "False", "None", "in", "not", "and", "or", "if", "is"}) {
      if (name == word) words_.refuse("cannot assign to " + quote(name));
    }
    return name;
  }

  Node for_block(int line) {
    Node node = words_.make(NodeKind::kFor, line);
    node.names = targets();
    if (!words_.skip_name("in")) words_.refuse("expected 'in' of the loop");
    node.operands.push_back(words_.list_of_loop());
    if (words_.skip_name("if")) node.operands.push_back(words_.expression());
    if (words_.is_name("recursive")) words_.refuse("recursive loops are not supported");
    end_of_block();
    ++loops_;
    node.body = body({"endfor", "else"});
    --loops_;
    if (words_.next().text == "else") {
      end_of_block();
      node.otherwise = body({"endfor"});
      words_.next();
    }
    end_of_block();
    return node;
  }

  Node set(int line) {
    Node node = words_.make(NodeKind::kSet, line);
    node.names = targets();
    if (node.names.size() == 1 && words_.skip_operator(".")) {
      node.kind = NodeKind::kSetMember;
      node.name = std::exchange(node.names[0], words_.expect_name());
    }
    if (words_.skip_operator("=")) {
      node.operands.push_back(words_.expression_or_tuple());
      end_of_block();
      return node;
    }
    if (node.kind == NodeKind::kSetMember || node.names.size() > 1) {
      words_.refuse("expected '=' after what is set");
    }
    node.kind = NodeKind::kSetBlock;
    Node text = words_.make(NodeKind::kCaptured, line);
    node.operands.push_back(words_.skip_operator("|") ? words_.filters_of(std::move(text))
                                                      : std::move(text));
    node.body = whole_body("endset");
    return node;
  }

  // Reads "(a, b=1)" of a macro or of a call block.
  void parameters(std::vector<std::string>& names, std::vector<Node>& defaults) {
    words_.expect_operator("(");
    while (!words_.is_operator(")")) {
      names.push_back(target());
      if (words_.skip_operator("=")) {
        defaults.push_back(words_.expression());
      } else if (!defaults.empty()) {
        words_.refuse("a parameter without a default follows one with a default");
      }
      if (!words_.is_operator(")")) words_.expect_operator(",");
    }
    words_.next();
  }

  Node macro(int line) {
    Node node = words_.make(NodeKind::kMacro, line);
    node.name = target();
    parameters(node.names, node.operands);
    node.body = apart([&] { return whole_body("endmacro"); });
    return node;
  }

  Node call_block(int line) {
    Node node = words_.make(NodeKind::kCallBlock, line);
    // The caller is a macro without a name, whose body is the block.
    Node caller = words_.make(NodeKind::kMacro, line);
    caller.name = "caller";
    if (words_.is_operator("(")) parameters(caller.names, caller.operands);
    node.operands.push_back(words_.expression());
    if (node.operands[0].kind != NodeKind::kCall) words_.refuse("expected a call");
    caller.body = apart([&] { return whole_body("endcall"); });
    node.body.push_back(std::move(caller));
    return node;
  }

  ExpressionParser words_;
  int level_ = 0;
  int loops_ = 0;
};

}  // namespace

std::vector<Node> parse(std::string_view source) { return StatementParser(source).run(); }

}  // namespace runnel::jinja
