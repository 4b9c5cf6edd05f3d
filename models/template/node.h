// The tree of a parsed template.
#pragma once

#include <string>
#include <vector>

#include "models/template/value.h"

namespace runnel::jinja {

enum class NodeKind {
  // Statements.
  kText,         // constant
  kPrint,        // operands: expression
  kIf,           // body: branches
  kBranch,       // operands: condition, none for `else`; body
  kFor,          // names: targets; operands: list, condition of items; body; otherwise
  kSet,          // names: targets; operands: value
  kSetMember,    // name: the namespace; names: the member; operands: value
  kSetBlock,     // names: target; operands: value made of the body (kCaptured); body
  kFilterBlock,  // operands: value made of the body; body
  kMacro,        // name; names: parameters; operands: defaults of the last ones; body
  kCallBlock,    // operands: call; names, otherwise: parameters of caller() and defaults; body
  kGeneration,   // body
  kBreak,
  kContinue,
  // Expressions.
  kConstant,
  kCaptured,  // the text of the block to which a filter is applied
  kName,
  kAttribute,  // name; operands: object
  kItem,       // operands: object, key
  kSlice,      // operands: object, start, stop, step
  kCall,       // operands: function, arguments; names: keywords of the last ones
  kSpread,     // of arguments: operands: list
  kFilter,     // name; operands: value, arguments; names
  kTest,       // as kFilter
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kCompare,     // operands; names: operators between them
  kArithmetic,  // as kCompare
  kConcat,
  kInlineIf,  // operands: condition, value, and the value otherwise
  kList,
  kTuple,
  kDict,  // operands: key, value, key, value
};

struct Node {
  NodeKind kind;
  int line = 0;
  int height = 1;  // of the tree of expressions below it
  std::string name = "";
  std::vector<std::string> names = {};
  Value constant = {};
  std::vector<Node> operands = {}, body = {}, otherwise = {};
};

}  // namespace runnel::jinja
