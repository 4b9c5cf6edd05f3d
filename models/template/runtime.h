// What filters, tests, methods and the interpreter share: making values within the budget, reaching
// into them, and the arguments of calls.
#pragma once

#include <ctime>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/budget.h"
#include "models/template/value.h"

namespace runnel::jinja {

// The arguments of one call. Reading one takes it: what is left over at the end is refused.
class Arguments {
 public:
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The next argument by place, or the one of this name; null where there is neither.
  const Value* take(std::string_view name);
  // The same for one that has to be there.
  const Value& need(std::string_view name);
  bool flag(std::string_view name, bool otherwise);
  int64_t integer(std::string_view name, int64_t otherwise);
  // All arguments from the next one on, by place.
  Arguments rest();
  // Throws a Fault where an argument was not taken.
  void end() const;

 private:
  size_t next_ = 0;
};

class Runtime {
 public:
  Runtime(Budget& budget, const std::tm& now) : budget_(budget), now_(now) {}

  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }

  // Values. Their memory counts.
  Value text(MarkedText text);
  Value text(std::string_view text, Writer writer = Writer::kTemplate);
  Value part(const Text& text, size_t from, size_t to);
  Value list(std::vector<Value> items, ListForm form = ListForm::kList);
  Value dict(std::vector<std::pair<Value, Value>> members);
  Value space(std::vector<std::pair<std::string, Value>> members);
  Value method(const Value& object, std::string_view name);
  static Value undefined(std::string why);

  // str() of a value. A text is itself.
  Value str(const Value& value);
  // The text that an argument is. Throws a Fault for others.
  const Text& need_text(const Value& value);
  // What a loop over the value sees. Throws a Fault where Python cannot iterate over it.
  std::vector<Value> items(const Value& value);
  // len(). Throws a Fault where it has none.
  int64_t length(const Value& value);
  // `item in container`.
  bool contains(const Value& container, const Value& item);

  // object.name, object[key], object[start:stop:step]; undefined where it has no such member.
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  // A member as filters name it: "a.b.0".
  Value attribute_path(Value object, const Value& path);

  // a + b, and so on. Throws a Fault where Python does.
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value negative(const Value& value);
  bool compares(const std::string& op, const Value& a, const Value& b);

  // Applies what has this name.
  Value filter(const std::string& name, const Value& value, Arguments arguments);
  bool test(const std::string& name, const Value& value, Arguments arguments);
  // The functions that every template has.
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

// The key of an item that a filter looks at: the member at `attribute` where that is given, in
// lower case unless `case_sensitive`.
Value sort_key(Runtime& run, const Value& item, const Value* attribute, bool case_sensitive);

}  // namespace runnel::jinja
