// Runs the tree of a template.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/node.h"
#include "models/template/runtime.h"

namespace runnel::jinja {

class Interpreter {
 public:
  // `variables`: the template's global variables.
  Interpreter(Runtime& run, std::vector<std::pair<std::string, Value>> variables);

  // Runs the statements, and returns the text that they print. Throws a Fault that has the line of
  // the template at which it failed.
  MarkedText run(const std::vector<Node>& statements);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // The names that one block has set. A block also sees the names of the blocks around it.
  struct Scope {
    size_t parent;
    int64_t serial;
    std::vector<std::pair<std::string_view, Value>> names;
  };
  // Text that is being printed.
  struct Output {
    explicit Output(Budget& budget) : memory(&budget) {}
    MarkedText text;
    Memory memory;
  };
  class Within;

  Flow statements(const std::vector<Node>& nodes);
  Flow statement(const Node& node);
  Flow if_block(const Node& node);
  Flow for_block(const Node& node);
  Flow one_turn(const Node& node, const std::vector<Value>& items, size_t index);
  Namespace& loop_variable();
  void print(const Value& value);
  void print_text(const Text& text);
  void grow_output(size_t before);
  void set(const Node& node);
  void set_member(const Node& node);
  void assign(const std::vector<std::string>& targets, const Value& value);
  void assign(const std::string& name, const Value& value);
  Flow text_block(const Node& node);
  // The text that a body prints, in a new scope. Sets how the body ends.
  Value captured(const std::vector<Node>& body, Flow& flow);
  void call_block(const Node& node);
  Value macro_of(const Node& node) const;

  Value evaluate(const Node& node);
  Value evaluate_node(const Node& node);
  Value look_up(const std::string& name) const;
  Value chain(const Node& node);
  Value compare(const Node& node);
  Value arithmetic(const Node& node);
  Value concat(const Node& node);
  Value inline_if(const Node& node);
  Value sequence(const Node& node);
  Value dict(const Node& node);
  Value call(const Node& node, const Value* caller = nullptr);
  Value call_macro(const Function& macro, Arguments arguments, const Value* caller);
  Arguments arguments(const Node& node);

  Runtime& run_;
  const std::vector<std::pair<std::string, Value>> variables_;
  std::vector<Scope> scopes_;
  size_t scope_ = 0;  // the index of the innermost scope
  int64_t serial_ = 0;
  std::vector<Value> loops_;  // the variable `loop` for each depth of nested loops
  int loop_depth_ = 0;
  int depth_ = 0;
  int macro_depth_ = 0;
  Output* output_ = nullptr;
  const Value* captured_ = nullptr;  // the text of the block whose filters are being evaluated
};

// Opens a scope within `parent`, and closes it when destroyed.
class Interpreter::Within {
 public:
  Within(Interpreter& of, size_t parent) : of_(of), before_(of.scope_) {
    of_.scopes_.push_back({parent, ++of_.serial_, {}});
    of_.scope_ = of_.scopes_.size() - 1;
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  ~Within() {
    of_.scopes_.pop_back();
    of_.scope_ = before_;
  }

 private:
  Interpreter& of_;
  size_t before_;
};

}  // namespace runnel::jinja
