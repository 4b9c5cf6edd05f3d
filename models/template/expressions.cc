// The interpreter's expressions. Its statements are in interpreter.cc.
#include <utility>

#include "base/text.h"
#include "models/template/builtins.h"
#include "models/template/interpreter.h"

namespace runnel::jinja {

Value Interpreter::evaluate(const Node& node) {
  run_.budget().spend(1);
  if (++depth_ > kMaxEvaluationDepth) {
    throw Fault{FaultKind::kLimit,
                "evaluations nest deeper than " + std::to_string(kMaxEvaluationDepth) + " levels"};
  }
  Value value = evaluate_node(node);
  --depth_;
  return value;
}

Value Interpreter::evaluate_node(const Node& node) {
  switch (node.kind) {
    case NodeKind::kConstant:
      return node.constant;
    case NodeKind::kCaptured:
      return *captured_;
    case NodeKind::kName:
      return look_up(node.name);
    case NodeKind::kAttribute:
      return run_.attribute(evaluate(node.operands[0]), node.name);
    case NodeKind::kItem: {
      const Value object = evaluate(node.operands[0]);
      return run_.item(object, evaluate(node.operands[1]));
    }
    case NodeKind::kSlice: {
      const Value object = evaluate(node.operands[0]);
      const Value start = evaluate(node.operands[1]);
      const Value stop = evaluate(node.operands[2]);
      return run_.slice(object, start, stop, evaluate(node.operands[3]));
    }
    case NodeKind::kCall:
      return call(node);
    case NodeKind::kFilter: {
      const Value value = evaluate(node.operands[0]);
      return run_.filter(node.name, value, arguments(node));
    }
    case NodeKind::kTest: {
      const Value value = evaluate(node.operands[0]);
      return Value::of(run_.test(node.name, value, arguments(node)));
    }
    case NodeKind::kNot:
      return Value::of(!is_true(evaluate(node.operands[0])));
    case NodeKind::kNegative:
      return run_.negative(evaluate(node.operands[0]));
    case NodeKind::kPositive:
      return run_.negative(run_.negative(evaluate(node.operands[0])));
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return chain(node);
    case NodeKind::kCompare:
      return compare(node);
    case NodeKind::kArithmetic:
      return arithmetic(node);
    case NodeKind::kConcat:
      return concat(node);
    case NodeKind::kInlineIf:
      return inline_if(node);
    case NodeKind::kList:
    case NodeKind::kTuple:
      return sequence(node);
    case NodeKind::kDict:
      return dict(node);
    default:
      fail("not an expression");
  }
}

Value Interpreter::chain(const Node& node) {
  Value value;
  for (const Node& operand : node.operands) {
    value = evaluate(operand);
    if (is_true(value) == (node.kind == NodeKind::kOr)) break;
  }
  return value;
}

Value Interpreter::compare(const Node& node) {
  Value left = evaluate(node.operands[0]);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(node.operands[i + 1]);
    if (!run_.compares(node.names[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Interpreter::arithmetic(const Node& node) {
  Value left = evaluate(node.operands[0]);
  for (size_t i = 0; i < node.names.size(); ++i) {
    const Value right = evaluate(node.operands[i + 1]);
    left = run_.arithmetic(node.names[i], left, right);
  }
  return left;
}

Value Interpreter::concat(const Node& node) {
  MarkedText marked;
  for (const Node& operand : node.operands) append_str(run_.budget(), marked, evaluate(operand));
  return run_.text(std::move(marked));
}

Value Interpreter::inline_if(const Node& node) {
  if (is_true(evaluate(node.operands[0]))) return evaluate(node.operands[1]);
  if (node.operands.size() > 2) return evaluate(node.operands[2]);
  return Runtime::undefined("the inline if has no else");
}

Value Interpreter::sequence(const Node& node) {
  std::vector<Value> items;
  for (const Node& operand : node.operands) items.push_back(evaluate(operand));
  return run_.list(std::move(items),
                   node.kind == NodeKind::kList ? ListForm::kList : ListForm::kTuple);
}

Value Interpreter::dict(const Node& node) {
  std::vector<std::pair<Value, Value>> members;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    Value key = evaluate(node.operands[i]);
    if (key.list() != nullptr || key.dict() != nullptr) {
      fail("a " + type_name(key) + " cannot be a key");
    }
    Value value = evaluate(node.operands[i + 1]);
    bool there = false;
    for (auto& member : members) {
      if (!equal(run_.budget(), member.first, key)) continue;
      member.second = value;
      there = true;
    }
    if (!there) members.emplace_back(std::move(key), std::move(value));
  }
  return run_.dict(std::move(members));
}

Arguments Interpreter::arguments(const Node& node) {
  Arguments all;
  const size_t by_place = node.operands.size() - node.names.size();
  for (size_t i = 1; i < node.operands.size(); ++i) {
    if (node.operands[i].kind == NodeKind::kSpread) {
      for (Value& item : run_.items(evaluate(node.operands[i].operands[0]))) {
        all.positional.push_back(std::move(item));
      }
      if (std::ssize(all.positional) > kMaxArguments) {
        throw Fault{FaultKind::kLimit,
                    "a call has more than " + std::to_string(kMaxArguments) + " arguments"};
      }
      continue;
    }
    Value value = evaluate(node.operands[i]);
    if (i < by_place) {
      all.positional.push_back(std::move(value));
    } else {
      all.named.emplace_back(node.names[i - by_place], std::move(value));
    }
  }
  return all;
}

Value Interpreter::call(const Node& node, const Value* caller) {
  const Value callee = evaluate(node.operands[0]);
  if (callee.is_undefined()) fail(*callee.undefined().why);
  const Function* function = callee.function();
  if (function == nullptr) fail("'" + type_name(callee) + "' object is not callable");
  Arguments given = arguments(node);
  if (function->is_method) return call_method(run_, function->self, function->name, given);
  if (function->macro == nullptr) return run_.call_function(function->name, std::move(given));
  return call_macro(*function, std::move(given), caller);
}

Value Interpreter::call_macro(const Function& function, Arguments given, const Value* caller) {
  const Node& macro = *function.macro;
  if (function.scope >= scopes_.size() || scopes_[function.scope].serial != function.serial) {
    fail("the macro " + quote(function.name, 40) + " is called outside of the block that made it");
  }
  if (macro_depth_ == kMaxMacroDepth) {
    throw Fault{FaultKind::kLimit,
                "macros call each other deeper than " + std::to_string(kMaxMacroDepth) + " levels"};
  }
  ++macro_depth_;
  Output output(run_.budget());
  Output* const before = std::exchange(output_, &output);
  {
    const Within scope(*this, function.scope);
    const size_t undefaulted = macro.names.size() - macro.operands.size();
    for (size_t i = 0; i < macro.names.size(); ++i) {
      if (const Value* value = given.take(macro.names[i])) {
        assign(macro.names[i], *value);
      } else if (i >= undefaulted) {
        assign(macro.names[i], evaluate(macro.operands[i - undefaulted]));
      } else {
        assign(macro.names[i],
               Runtime::undefined("parameter " + quote(macro.names[i], 40) + " was not provided"));
      }
    }
    given.end();
    if (caller != nullptr) scopes_.back().names.emplace_back("caller", *caller);
    statements(macro.body);
  }
  output_ = before;
  --macro_depth_;
  return run_.text(std::move(output.text));
}

}  // namespace runnel::jinja
