#include "models/template/interpreter.h"

#include <utility>

#include "base/text.h"
#include "models/template/builtins.h"

namespace runnel::jinja {

Interpreter::Interpreter(Runtime& run, std::vector<std::pair<std::string, Value>> variables)
    : run_(run), variables_(std::move(variables)) {
  scopes_.push_back({0, 0, {}});
  for (const char* name : Runtime::kFunctions) {
    scopes_[0].names.emplace_back(
        name, Value::Held(std::shared_ptr<const Function>(run_.function(name))));
  }
  for (const auto& [name, value] : variables_) assign(name, value);
}

MarkedText Interpreter::run(const std::vector<Node>& nodes) {
  Output output(run_.budget());
  output_ = &output;
  statements(nodes);
  output_ = nullptr;
  return std::move(output.text);
}

Interpreter::Flow Interpreter::statements(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    Flow flow = Flow::kNext;
    try {
      run_.budget().spend(1);
      flow = statement(node);
    } catch (Fault& fault) {
      if (fault.line == 0) fault.line = node.line;
      throw;
    }
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::statement(const Node& node) {
  switch (node.kind) {
    case NodeKind::kText:
      print_text(*node.constant.text());
      break;
    case NodeKind::kPrint:
      print(evaluate(node.operands[0]));
      break;
    case NodeKind::kIf:
      return if_block(node);
    case NodeKind::kFor:
      return for_block(node);
    case NodeKind::kSet:
      set(node);
      break;
    case NodeKind::kSetMember:
      set_member(node);
      break;
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock:
      return text_block(node);
    case NodeKind::kMacro:
      assign(node.name, macro_of(node));
      break;
    case NodeKind::kCallBlock:
      call_block(node);
      break;
    case NodeKind::kGeneration: {
      const Within scope(*this, scope_);
      statements(node.body);
      break;
    }
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      fail("not a statement");
  }
  return Flow::kNext;
}

// Sets or prints the text of a block after its filters. A break or a continue of a loop around the
// block drops the text.
Interpreter::Flow Interpreter::text_block(const Node& node) {
  Flow flow = Flow::kNext;
  const Value text = captured(node.body, flow);
  if (flow != Flow::kNext) return flow;
  const Value* const before = std::exchange(captured_, &text);
  const Value made = evaluate(node.operands[0]);
  captured_ = before;
  if (node.kind == NodeKind::kSetBlock) {
    assign(node.names[0], made);
  } else {
    print(made);
  }
  return Flow::kNext;
}

void Interpreter::print(const Value& value) {
  if (const Text* text = value.text()) return print_text(*text);
  const size_t before = memory_of(output_->text);
  append_str(run_.budget(), output_->text, value);
  grow_output(before);
}

void Interpreter::print_text(const Text& text) {
  run_.budget().spend_on_bytes(text.bytes.size());
  run_.budget().expect_room(output_->text, 0);
  const size_t before = memory_of(output_->text);
  output_->text.append(text);
  grow_output(before);
}

void Interpreter::grow_output(size_t before) {
  output_->memory.grow(memory_of(output_->text) - before);
  if (std::ssize(output_->text.bytes) > kMaxOutputBytes) {
    throw Fault{FaultKind::kLimit,
                "the template prints more than " + std::to_string(kMaxOutputBytes) + " bytes"};
  }
}

Interpreter::Flow Interpreter::if_block(const Node& node) {
  for (const Node& branch : node.body) {
    if (branch.operands.empty() || is_true(evaluate(branch.operands[0]))) {
      return statements(branch.body);
    }
  }
  return Flow::kNext;
}

// The variable `loop`. Consecutive loops at the same depth share it.
Namespace& Interpreter::loop_variable() {
  if (loop_depth_ == std::ssize(loops_)) loops_.push_back(run_.space({}));
  return *loops_[static_cast<size_t>(loop_depth_)].space();
}

Interpreter::Flow Interpreter::for_block(const Node& node) {
  std::vector<Value> items = run_.items(evaluate(node.operands[0]));
  Memory memory(&run_.budget());
  memory.grow(items.size() * sizeof(Value));
  if (node.operands.size() > 1) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const Within scope(*this, scope_);
      run_.budget().spend(1);
      assign(node.names, item);
      if (is_true(evaluate(node.operands[1]))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (one_turn(node, items, i) == Flow::kBreak) break;
  }
  if (!items.empty() || node.otherwise.empty()) return Flow::kNext;
  const Within scope(*this, scope_);
  return statements(node.otherwise);
}

Interpreter::Flow Interpreter::one_turn(const Node& node, const std::vector<Value>& items,
                                        size_t index) {
  const Within scope(*this, scope_);
  run_.budget().spend(1);
  const auto at = static_cast<int64_t>(index);
  const int64_t size = std::ssize(items);
  Namespace& loop = loop_variable();
  loop.members = {
      {"index", Value::of(at + 1)},
      {"index0", Value::of(at)},
      {"first", Value::of(at == 0)},
      {"last", Value::of(at + 1 == size)},
      {"length", Value::of(size)},
      {"revindex", Value::of(size - at)},
      {"revindex0", Value::of(size - at - 1)},
      {"previtem", at > 0 ? items[index - 1] : run_.undefined("there is no previous item")},
      {"nextitem", at + 1 < size ? items[index + 1] : run_.undefined("there is no next item")},
      {"depth", Value::of(int64_t{1})},
      {"depth0", Value::of(int64_t{0})}};
  scopes_.back().names.emplace_back("loop", loops_[static_cast<size_t>(loop_depth_)]);
  assign(node.names, items[index]);
  ++loop_depth_;
  const Flow flow = statements(node.body);
  --loop_depth_;
  return flow;
}

void Interpreter::set(const Node& node) {
  const Value value = evaluate(node.operands[0]);
  if (node.names.size() == 1) return assign(node.names[0], value);
  assign(node.names, value);
}

void Interpreter::set_member(const Node& node) {
  const Value value = evaluate(node.operands[0]);
  const Value target = look_up(node.name);
  Namespace* space = target.space();
  if (space == nullptr) fail("cannot assign attribute on non-namespace object");
  for (auto& [name, member] : space->members) {
    if (name != node.names[0]) continue;
    member = value;
    return;
  }
  run_.budget().take(static_cast<int64_t>(sizeof(std::pair<std::string, Value>)));
  space->members.emplace_back(node.names[0], value);
}

void Interpreter::assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) return assign(targets[0], value);
  const size_t wanted = targets[1].empty() ? 1 : targets.size();
  if (value.is_undefined()) fail(*value.undefined().why);
  const std::vector<Value> parts = run_.items(value);
  if (parts.size() != wanted) {
    fail("expected " + std::to_string(wanted) + " values to unpack, found " +
         std::to_string(parts.size()));
  }
  for (size_t i = 0; i < wanted; ++i) assign(targets[i], parts[i]);
}

void Interpreter::assign(const std::string& name, const Value& value) {
  for (auto& [other, held] : scopes_[scope_].names) {
    if (other != name) continue;
    held = value;
    return;
  }
  scopes_[scope_].names.emplace_back(name, value);
}

Value Interpreter::look_up(const std::string& name) const {
  for (size_t at = scope_;; at = scopes_[at].parent) {
    for (const auto& [other, value] : scopes_[at].names) {
      if (other == name) return value;
    }
    if (at == 0) return Runtime::undefined(quote(name, 40) + " is undefined");
  }
}

Value Interpreter::captured(const std::vector<Node>& body, Flow& flow) {
  Output output(run_.budget());
  Output* const before = std::exchange(output_, &output);
  {
    const Within scope(*this, scope_);
    flow = statements(body);
  }
  output_ = before;
  return run_.text(std::move(output.text));
}

Value Interpreter::macro_of(const Node& node) const {
  auto function = run_.function(node.name);
  function->macro = &node;
  function->scope = scope_;
  function->serial = scopes_[scope_].serial;
  return Value::Held(std::shared_ptr<const Function>(std::move(function)));
}

void Interpreter::call_block(const Node& node) {
  const Value caller = macro_of(node.body[0]);
  print(call(node.operands[0], &caller));
}

}  // namespace runnel::jinja
