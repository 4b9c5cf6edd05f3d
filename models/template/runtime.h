// Functions that filters, tests, methods and the interpreter share: they make values within the
// budget, access members, and read the arguments of calls.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/budget.h"
#include "models/template/value.h"

namespace runnel::jinja {

// The arguments of one call. Reading an argument takes it, and end() refuses the arguments that are
// left.
class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The next positional argument, or the argument of this name. Null if there is neither.
  const Value* take(std::string_view name);
  // The same for a required argument.
  const Value& need(std::string_view name);
  bool flag(std::string_view name, bool otherwise);
  int64_t integer(std::string_view name, int64_t otherwise);
  // All remaining positional arguments.
  Arguments rest();
  // Throws a Fault if an argument was not taken.
  void end() const;

 private:
  size_t next_ = 0;
};

class Runtime {
 public:
  Runtime(Budget& budget, const std::tm& now) : budget_(budget), now_(now) {}

  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }

  // Make values, and count their memory.
  Value text(MarkedText text);
  Value text(std::string_view text, Writer writer = Writer::kTemplate);
  Value part(const Text& text, size_t from, size_t to);
  Value list(std::vector<Value> items, ListForm form = ListForm::kList);
  Value dict(std::vector<std::pair<Value, Value>> members);
  Value space(std::vector<std::pair<std::string, Value>> members);
  std::shared_ptr<Function> function(std::string_view name);
  Value method(const Value& object, std::string_view name);
  static Value undefined(std::string why);

  // str() of a value. A text is returned unchanged.
  Value str(const Value& value);
  // The argument as a text. Throws a Fault if it is not a text.
  const Text& need_text(const Value& value);
  // The items over which a loop iterates. Throws a Fault if Python cannot iterate over the value.
  std::vector<Value> items(const Value& value);
  // len(). Throws a Fault if the value has no length.
  int64_t length(const Value& value);
  // `item in container`.
  bool contains(const Value& container, const Value& item);

  // object.name, object[key], object[start:stop:step]. Undefined if there is no such member.
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  // The member at a path in the form that filters use: "a.b.0".
  Value attribute_path(Value object, const Value& path);

  // a + b, and so on. Throws a Fault if Python raises an error.
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value negative(const Value& value);
  bool compares(const std::string& op, const Value& a, const Value& b);

  // Applies the filter or the test of this name.
  Value filter(const std::string& name, const Value& value, Arguments arguments);
  bool test(const std::string& name, const Value& value, Arguments arguments);
  // The global functions of every template.
  static constexpr const char* kFunctions[] = {"range", "namespace", "dict", "raise_exception",
                                               "strftime_now"};
  Value call_function(const std::string& name, Arguments arguments);

 private:
  Value slice_text(const Text& text, int64_t start, int64_t stop, int64_t step);
  Value concatenated(const List& a, const List& b);
  Value repeated(const Value& a, const Value& b);
  Value range(Arguments& arguments);

  Budget& budget_;
  const std::tm now_;
  std::deque<Namespace> spaces_;
};

// The sort key of an item for a filter: the item or, if `attribute` is given, its member of that
// name. In lower case unless `case_sensitive`.
Value sort_key(Runtime& run, const Value& item, const Value* attribute, bool case_sensitive);

}  // namespace runnel::jinja
