// The values of a rendering, with the types of Python.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/template/budget.h"
#include "models/text/marked_text.h"

namespace runnel::jinja {

struct Node;
struct Text;
struct List;
struct Dict;
struct Function;
struct Namespace;
class Value;

// The value of a name or a member that does not exist. Most operations on it fail with `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<List>, std::shared_ptr<Dict>,
                            std::shared_ptr<const Function>, Namespace*>;
  Value() = default;                            // undefined
  Value(Held held) : held_(std::move(held)) {}  // NOLINT(google-explicit-constructor)
  static Value none() { return Held(None()); }
  static Value of(bool value) { return Held(value); }
  static Value of(int64_t value) { return Held(value); }
  static Value of(double value) { return Held(value); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  bool is_bool() const { return std::holds_alternative<bool>(held_); }
  bool is_int() const { return std::holds_alternative<int64_t>(held_); }
  bool is_float() const { return std::holds_alternative<double>(held_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }

  // The value of a bool or an integer as an integer.
  int64_t integer() const { return is_bool() ? (boolean() ? 1 : 0) : std::get<int64_t>(held_); }
  bool boolean() const { return std::get<bool>(held_); }
  double number() const {
    return is_float() ? std::get<double>(held_) : static_cast<double>(integer());
  }
  // Null if the value has another type.
  const Text* text() const { return pointer<std::shared_ptr<const Text>>(); }
  List* list() const { return pointer<std::shared_ptr<List>>(); }
  Dict* dict() const { return pointer<std::shared_ptr<Dict>>(); }
  const Function* function() const { return pointer<std::shared_ptr<const Function>>(); }
  Namespace* space() const {
    const auto* held = std::get_if<Namespace*>(&held_);
    return held == nullptr ? nullptr : *held;
  }
  const Undefined& undefined() const { return std::get<Undefined>(held_); }

 private:
  template <typename Pointer>
  auto pointer() const -> decltype(std::declval<Pointer>().get()) {
    const auto* held = std::get_if<Pointer>(&held_);
    return held == nullptr ? nullptr : held->get();
  }

  Held held_;
};

struct Text : MarkedText {
  explicit Text(Budget* budget) : memory(budget) {}
  Memory memory;
};

// The types of Python that a List may represent.
enum class ListForm { kList, kTuple, kRange, kView, kGenerator };

struct List {
  List(Budget* budget, ListForm list_form) : memory(budget), form(list_form) {}
  Memory memory;
  ListForm form;
  int depth = 1;      // of the nesting of lists and dicts
  bool used = false;  // a generator that has been read, and is now empty
  std::vector<Value> items;
};

// The members are in the order in which they were added.
struct Dict {
  explicit Dict(Budget* budget) : memory(budget) {}
  Memory memory;
  int depth = 1;
  std::vector<std::pair<Value, Value>> members;
};

// A value that can be called: a macro, a global function, or a method with its object.
struct Function {
  explicit Function(Budget* budget) : memory(budget) {}
  Memory memory;
  std::string name;
  const Node* macro = nullptr;
  size_t scope = 0;    // of a macro: the index of the scope where it was defined,
  int64_t serial = 0;  // and the serial number of that scope
  bool is_method = false;
  Value self = {};
};

// The result of namespace(). The rendering owns it: a namespace that owned itself would leak.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

// The type's name in Python: "str", "dict", "NoneType".
std::string type_name(const Value& value);
bool is_true(const Value& value);
// a == b. Counts the work on `budget`.
bool equal(Budget& budget, const Value& a, const Value& b);
// Negative, 0 or positive, as a is less than, equal to or greater than b. Throws a Fault if Python
// cannot order them.
int compare(Budget& budget, const Value& a, const Value& b);
// The member of a dict, or null.
const Value* find(Budget& budget, const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);

// Appends str() of a value. For lists and dicts it is repr().
void append_str(Budget& budget, MarkedText& to, const Value& value);

// The options of tojson.
struct JsonForm {
  bool ascii = false, sorted = false, lines = false;
  std::string indent = "", between_items = ", ", after_key = ": ";
};
// Appends json.dumps() of a value. Throws a Fault if the value has no JSON form.
void append_json(Budget& budget, MarkedText& to, const Value& value, const JsonForm& form);

}  // namespace runnel::jinja
