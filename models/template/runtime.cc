#include "models/template/runtime.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/text.h"
#include "models/template/builtins.h"
#include "models/template/python_text.h"

namespace runnel::jinja {
namespace {

constexpr size_t kTextBytes = 160;  // of a text without its bytes, with the pointers to it
constexpr size_t kItemBytes = 32;
constexpr size_t kListBytes = 128;
constexpr size_t kFunctionBytes = 160;  // of a function without its name, with the pointers to it

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  // A method keeps its object, which is not a function.
  if (const Function* function = value.function()) return depth_of(function->self) + 1;
  return 0;
}

int depth_with(int depth, const Value& value) {
  depth = std::max(depth, depth_of(value) + 1);
  if (depth > kMaxValueDepth) {
    throw Fault{FaultKind::kLimit,
                "a value nests deeper than " + std::to_string(kMaxValueDepth) + " levels"};
  }
  return depth;
}

// By reference, because the result exists only after `overflow` is evaluated.
int64_t checked(bool overflow, const int64_t& value) {
  if (overflow) fail("a number is too large: integers have 64 bits here");
  return value;
}

int64_t floor_divided(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integers(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") return Value::of(checked(__builtin_add_overflow(a, b, &result), result));
  if (op == "-") return Value::of(checked(__builtin_sub_overflow(a, b, &result), result));
  if (op == "*") return Value::of(checked(__builtin_mul_overflow(a, b, &result), result));
  if (b == 0) fail("division by zero");
  if (op == "/") return Value::of(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == "%") return Value::of(int64_t{0});
    return Value::of(checked(__builtin_sub_overflow(int64_t{0}, a, &result), result));
  }
  const int64_t quotient = floor_divided(a, b);
  return Value::of(op == "%" ? a - quotient * b : quotient);
}

Value floats(const std::string& op, double a, double b) {
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (b == 0.0) fail("division by zero");
  if (op == "/") return Value::of(a / b);
  if (op == "//") return Value::of(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::of(rest != 0.0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

bool is_range_step(int64_t at, int64_t stop, int64_t step) {
  return step > 0 ? at < stop : at > stop;
}

// Python's slice.indices() for a sequence with `length` items.
struct Slice {
  int64_t start, stop, step;
};

Slice slice_of(int64_t length, const Value& start, const Value& stop, const Value& step) {
  for (const Value* value : {&start, &stop, &step}) {
    if (!value->is_none() && !value->is_bool() && !value->is_int()) {
      fail("slice indices must be integers or None");
    }
  }
  const int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) fail("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? length : length - 1;
  const auto place = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const int64_t at = value.integer();
    return at < 0 ? std::max(at + length, low) : std::min(at, high);
  };
  return {place(start, by > 0 ? low : high), place(stop, by > 0 ? high : low), by};
}

}  // namespace

const Value* Arguments::take(std::string_view name) {
  if (next_ < positional.size()) return &positional[next_++];
  for (auto& [key, value] : named) {
    if (key != name) continue;
    key.clear();
    return &value;
  }
  return nullptr;
}

const Value& Arguments::need(std::string_view name) {
  const Value* value = take(name);
  if (value == nullptr) fail("the argument " + quote(name) + " is missing");
  return *value;
}

bool Arguments::flag(std::string_view name, bool otherwise) {
  const Value* value = take(name);
  return value == nullptr ? otherwise : is_true(*value);
}

int64_t Arguments::integer(std::string_view name, int64_t otherwise) {
  const Value* value = take(name);
  if (value == nullptr) return otherwise;
  if (!value->is_int() && !value->is_bool()) {
    fail("the argument " + quote(name) + " is a " + type_name(*value) + "; expected an integer");
  }
  return value->integer();
}

Arguments Arguments::rest() {
  Arguments others;
  others.positional.assign(positional.begin() + static_cast<std::ptrdiff_t>(next_),
                           positional.end());
  next_ = positional.size();
  for (auto& [key, value] : named) {
    if (!key.empty()) others.named.emplace_back(std::exchange(key, ""), value);
  }
  return others;
}

void Arguments::end() const {
  if (next_ < positional.size()) fail("there are too many arguments");
  for (const auto& [key, value] : named) {
    if (!key.empty()) fail("there is no argument " + quote(key, 40));
  }
}

Value Runtime::text(MarkedText text) {
  auto value = std::make_shared<Text>(&budget_);
  value->memory.grow(memory_of(text) + kTextBytes);
  static_cast<MarkedText&>(*value) = std::move(text);
  return Value::Held(std::shared_ptr<const Text>(std::move(value)));
}

Value Runtime::text(std::string_view bytes, Writer writer) {
  MarkedText marked;
  marked.append(bytes, writer);
  return text(std::move(marked));
}

Value Runtime::part(const Text& whole, size_t from, size_t to) {
  budget_.spend(1);
  budget_.spend_on_bytes(to - from);
  MarkedText marked;
  marked.append(whole, from, to);
  return text(std::move(marked));
}

Value Runtime::list(std::vector<Value> items, ListForm form) {
  auto value = std::make_shared<List>(&budget_, form);
  value->memory.grow(items.size() * kItemBytes + kListBytes);
  for (const Value& item : items) value->depth = depth_with(value->depth, item);
  value->items = std::move(items);
  return Value::Held(std::move(value));
}

Value Runtime::dict(std::vector<std::pair<Value, Value>> members) {
  auto value = std::make_shared<Dict>(&budget_);
  value->memory.grow(members.size() * 2 * kItemBytes + kListBytes);
  for (const auto& [key, member] : members) {
    value->depth = depth_with(depth_with(value->depth, key), member);
  }
  value->members = std::move(members);
  return Value::Held(std::move(value));
}

Value Runtime::space(std::vector<std::pair<std::string, Value>> members) {
  budget_.take(static_cast<int64_t>(members.size() * 2 * kItemBytes + kListBytes));
  spaces_.push_back({std::move(members)});
  return Value::Held(&spaces_.back());
}

std::shared_ptr<Function> Runtime::function(std::string_view name) {
  auto made = std::make_shared<Function>(&budget_);
  made->memory.grow(name.size() + kFunctionBytes);
  made->name = name;
  return made;
}

Value Runtime::method(const Value& object, std::string_view name) {
  auto made = function(name);
  made->is_method = true;
  made->self = object;
  return Value::Held(std::shared_ptr<const Function>(std::move(made)));
}

Value Runtime::undefined(std::string why) {
  return Value::Held(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value Runtime::str(const Value& value) {
  if (value.text() != nullptr) return value;
  MarkedText marked;
  append_str(budget_, marked, value);
  return text(std::move(marked));
}

const Text& Runtime::need_text(const Value& value) {
  if (value.text() == nullptr) fail("expected a string, found a value of type " + type_name(value));
  return *value.text();
}

std::vector<Value> Runtime::items(const Value& value) {
  std::vector<Value> all;
  if (value.is_undefined()) return all;
  if (List* list = value.list()) {
    budget_.spend(static_cast<int64_t>(list->items.size() / 8));
    if (list->form != ListForm::kGenerator) return list->items;
    if (!std::exchange(list->used, true)) all = std::move(list->items);
    list->items.clear();
    return all;
  }
  if (const Dict* dict = value.dict()) {
    budget_.spend(static_cast<int64_t>(dict->members.size() / 8));
    for (const auto& member : dict->members) all.push_back(member.first);
    return all;
  }
  const Text* text = value.text();
  if (text == nullptr) fail("'" + type_name(value) + "' object is not iterable");
  for (size_t at = 0; at < text->bytes.size();) {
    const size_t bytes = code_point_at(text->bytes, at).bytes;
    all.push_back(part(*text, at, at + bytes));
    at += bytes;
  }
  return all;
}

int64_t Runtime::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Dict* dict = value.dict()) return std::ssize(dict->members);
  if (const Text* text = value.text()) {
    budget_.spend_on_bytes(text->bytes.size());
    return jinja::length(text->bytes);
  }
  const List* list = value.list();
  if (list == nullptr || list->form == ListForm::kGenerator) {
    fail("object of type '" + type_name(value) + "' has no len()");
  }
  return std::ssize(list->items);
}

bool Runtime::contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.is_undefined()) fail(*item.undefined().why);
    if (item.text() == nullptr) {
      fail("'in <string>' requires string as left operand, not " + type_name(item));
    }
    const std::string& part = item.text()->bytes;
    budget_.spend_on_bytes(text->bytes.size());
    return memmem(text->bytes.data(), text->bytes.size(), part.data(), part.size()) != nullptr;
  }
  if (const Dict* dict = container.dict()) return find(budget_, *dict, item) != nullptr;
  for (const Value& other : items(container)) {
    if (equal(budget_, other, item)) return true;
  }
  return false;
}

Value Runtime::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail(*object.undefined().why);
  if (const Namespace* space = object.space()) {
    for (const auto& [key, value] : space->members) {
      if (key == name) return value;
    }
  } else if (has_method(object, name)) {
    return method(object, name);
  } else if (const Dict* dict = object.dict()) {
    budget_.spend(static_cast<int64_t>(dict->members.size() / 16));
    if (const Value* member = find(*dict, name)) return *member;
  }
  return undefined("'" + type_name(object) + " object' has no attribute " + quote(name, 40));
}

Value Runtime::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail(*object.undefined().why);
  if (const Dict* dict = object.dict()) {
    if (const Value* member = find(budget_, *dict, key)) return *member;
  }
  if (key.text() != nullptr) {
    const std::string& name = key.text()->bytes;
    if (object.space() != nullptr || has_method(object, name)) return attribute(object, name);
  }
  const List* list = object.list();
  const bool indexed =
      list != nullptr && list->form != ListForm::kView && list->form != ListForm::kGenerator;
  if ((key.is_int() || key.is_bool()) && (indexed || object.text() != nullptr)) {
    const int64_t size = length(object);
    const int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
    if (at >= 0 && at < size) {
      if (indexed) return list->items[static_cast<size_t>(at)];
      const std::string& bytes = object.text()->bytes;
      const size_t from = byte_offset(bytes, at);
      return part(*object.text(), from, from + code_point_at(bytes, from).bytes);
    }
  }
  MarkedText shown;
  if (key.text() != nullptr || key.is_number()) append_str(budget_, shown, key);
  return undefined("'" + type_name(object) + " object' has no element " + quote(shown.bytes, 40));
}

Value Runtime::slice(const Value& object, const Value& start, const Value& stop,
                     const Value& step) {
  if (object.is_undefined()) fail(*object.undefined().why);
  const List* list = object.list();
  const bool sliced =
      list != nullptr && list->form != ListForm::kView && list->form != ListForm::kGenerator;
  if (!sliced && object.text() == nullptr) return undefined("the value has no slices");
  const Slice at = slice_of(length(object), start, stop, step);
  if (!sliced) return slice_text(*object.text(), at.start, at.stop, at.step);
  std::vector<Value> all;
  for (int64_t i = at.start; is_range_step(i, at.stop, at.step);) {
    all.push_back(list->items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, at.step, &i)) break;
  }
  budget_.spend(static_cast<int64_t>(all.size() / 8));
  return this->list(std::move(all), list->form);
}

Value Runtime::slice_text(const Text& text, int64_t start, int64_t stop, int64_t step) {
  if (step == 1) {
    const size_t from = byte_offset(text.bytes, start);
    const size_t to = from + byte_offset(std::string_view(text.bytes).substr(from),
                                         std::max<int64_t>(0, stop - start));
    return part(text, from, to);
  }
  budget_.spend(static_cast<int64_t>(text.bytes.size()));
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.bytes.size(); at += code_point_at(text.bytes, at).bytes) {
    offsets.push_back(at);
  }
  MarkedText marked;
  for (int64_t i = start; is_range_step(i, stop, step);) {
    const size_t at = offsets[static_cast<size_t>(i)];
    marked.append(text, at, at + code_point_at(text.bytes, at).bytes);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return this->text(std::move(marked));
}

Value Runtime::attribute_path(Value object, const Value& path) {
  if (path.text() == nullptr) return item(object, path);
  std::string_view left = path.text()->bytes;
  for (;;) {
    const size_t dot = left.find('.');
    const std::string_view name = left.substr(0, dot);
    const bool digits = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string_view::npos;
    object = digits ? item(object, Value::of(int64_t{std::stoll(std::string(name))}))
                    : item(object, text(name));
    if (dot == std::string_view::npos) return object;
    left.remove_prefix(dot + 1);
  }
}

Value Runtime::concatenated(const List& a, const List& b) {
  budget_.spend(static_cast<int64_t>((a.items.size() + b.items.size()) / 8));
  std::vector<Value> all = a.items;
  all.insert(all.end(), b.items.begin(), b.items.end());
  return list(std::move(all), a.form);
}

Value Runtime::repeated(const Value& a, const Value& b) {
  const Value& count = a.is_int() || a.is_bool() ? a : b;
  const Value& what = &count == &a ? b : a;
  const int64_t times = std::max<int64_t>(0, count.integer());
  if (const Text* text = what.text()) {
    const size_t bytes = memory_of(*text);
    if (times > 0 && bytes > 0 && static_cast<uint64_t>(times) > (uint64_t{1} << 40) / bytes) {
      fail("a string times " + std::to_string(times) + " is too long");
    }
    MarkedText marked;
    budget_.expect_room(marked, bytes * static_cast<size_t>(times));
    budget_.spend(times);
    budget_.spend_on_bytes(bytes * static_cast<size_t>(times));
    for (int64_t i = 0; i < times && bytes > 0; ++i) marked.append(*text);
    return this->text(std::move(marked));
  }
  const List& part = *what.list();
  if (std::ssize(part.items) * std::min<int64_t>(times, kMaxRange) > kMaxRange ||
      (times > kMaxRange && !part.items.empty())) {
    throw Fault{FaultKind::kLimit,
                "a list of more than " + std::to_string(kMaxRange) + " items by '*'"};
  }
  std::vector<Value> all;
  for (int64_t i = 0; i < times && !part.items.empty(); ++i) {
    all.insert(all.end(), part.items.begin(), part.items.end());
  }
  return list(std::move(all), part.form);
}

Value Runtime::arithmetic(const std::string& op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail(*value->undefined().why);
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return floats(op, a.number(), b.number());
    return integers(op, a.integer(), b.integer());
  }
  const auto is_sequence = [](const Value& value) {
    return value.text() != nullptr ||
           (value.list() != nullptr &&
            (value.list()->form == ListForm::kList || value.list()->form == ListForm::kTuple));
  };
  if (op == "+" && a.text() != nullptr && b.text() != nullptr) {
    budget_.spend_on_bytes(a.text()->bytes.size() + b.text()->bytes.size());
    MarkedText marked;
    budget_.expect_room(marked, memory_of(*a.text()) + memory_of(*b.text()));
    marked.append(*a.text());
    marked.append(*b.text());
    return text(std::move(marked));
  }
  if (op == "+" && a.text() == nullptr && b.text() == nullptr && is_sequence(a) && is_sequence(b) &&
      a.list()->form == b.list()->form) {
    return concatenated(*a.list(), *b.list());
  }
  const bool times = ((a.is_int() || a.is_bool()) && is_sequence(b)) ||
                     ((b.is_int() || b.is_bool()) && is_sequence(a));
  if (op == "*" && times) return repeated(a, b);
  if (op == "%" && a.text() != nullptr) fail("'%' on strings is not supported");
  fail("unsupported operand types for " + op + ": '" + type_name(a) + "' and '" + type_name(b) +
       "'");
}

Value Runtime::negative(const Value& value) {
  if (value.is_undefined()) fail(*value.undefined().why);
  if (!value.is_number()) fail("bad operand type for unary -: '" + type_name(value) + "'");
  if (value.is_float()) return Value::of(-value.number());
  return integers("-", 0, value.integer());
}

bool Runtime::compares(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(budget_, a, b);
  if (op == "!=") return !equal(budget_, a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  const int order = compare(budget_, a, b);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

Value Runtime::filter(const std::string& name, const Value& value, Arguments arguments) {
  const Filter apply = find_filter(name);
  if (apply == nullptr) fail("there is no filter " + quote(name, 40));
  budget_.spend(1);
  Value result = apply(*this, value, arguments);
  arguments.end();
  return result;
}

bool Runtime::test(const std::string& name, const Value& value, Arguments arguments) {
  const Test apply = find_test(name);
  if (apply == nullptr) fail("there is no test " + quote(name, 40));
  budget_.spend(1);
  const bool result = apply(*this, value, arguments);
  arguments.end();
  return result;
}

Value Runtime::range(Arguments& arguments) {
  int64_t start = 0;
  int64_t stop = 0;
  if (arguments.positional.size() == 1) {
    stop = arguments.integer("stop", 0);
  } else {
    start = arguments.integer("start", 0);
    stop = arguments.integer("stop", 0);
  }
  const int64_t step = arguments.integer("step", 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  std::vector<Value> all;
  for (int64_t i = start; is_range_step(i, stop, step);) {
    if (std::ssize(all) == kMaxRange) {
      throw Fault{FaultKind::kLimit,
                  "a range of more than " + std::to_string(kMaxRange) + " numbers"};
    }
    all.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget_.spend(static_cast<int64_t>(all.size() / 8));
  return list(std::move(all), ListForm::kRange);
}

Value Runtime::call_function(const std::string& name, Arguments arguments) {
  budget_.spend(1);
  if (name == "raise_exception") {
    const Value message = str(arguments.need("message"));
    throw Fault{FaultKind::kRaised, message.text()->bytes};
  }
  if (name == "strftime_now") {
    const std::string format = need_text(arguments.need("format")).bytes;
    arguments.end();
    std::array<char, 1024> buffer;
    if (format.size() > 256) fail("the format of strftime_now has more than 256 bytes");
    const size_t bytes = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now_);
    return text(std::string_view(buffer.data(), bytes));
  }
  if (name == "range") {
    Value result = range(arguments);
    arguments.end();
    return result;
  }
  std::vector<std::pair<Value, Value>> members;
  if (const Value* from = arguments.positional.empty() ? nullptr : arguments.take("mapping")) {
    if (from->dict() == nullptr) fail(name + "() takes a dict");
    members = from->dict()->members;
  }
  const auto set = [&](const Value& key, const Value& value) {
    for (auto& member : members) {
      if (equal(budget_, member.first, key)) {
        member.second = value;
        return;
      }
    }
    members.emplace_back(key, value);
  };
  const Arguments others = arguments.rest();
  if (!others.positional.empty()) fail(name + "() takes one dict and keywords");
  for (const auto& [key, value] : others.named) set(text(key), value);
  if (name == "dict") return dict(std::move(members));
  std::vector<std::pair<std::string, Value>> names;
  for (const auto& [key, value] : members) names.emplace_back(need_text(key).bytes, value);
  return space(std::move(names));
}

Value sort_key(Runtime& run, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key =
      attribute == nullptr || attribute->is_none() ? item : run.attribute_path(item, *attribute);
  if (case_sensitive || key.text() == nullptr) return key;
  run.budget().spend_on_bytes(key.text()->bytes.size());
  return run.text(change_case(*key.text(), Case::kLower));
}

}  // namespace runnel::jinja
