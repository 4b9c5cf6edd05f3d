#include <algorithm>
#include <iterator>

#include "models/template/builtins.h"
#include "models/template/python_text.h"

namespace runnel::jinja {
namespace {

bool is_real_int(const Value& value) { return value.is_int() && !value.is_bool(); }

bool defined(Runtime&, const Value& v, Arguments&) { return !v.is_undefined(); }
bool undefined(Runtime&, const Value& v, Arguments&) { return v.is_undefined(); }
bool none(Runtime&, const Value& v, Arguments&) { return v.is_none(); }
bool boolean(Runtime&, const Value& v, Arguments&) { return v.is_bool(); }
bool is_false(Runtime&, const Value& v, Arguments&) { return v.is_bool() && !v.boolean(); }
bool is_really_true(Runtime&, const Value& v, Arguments&) { return v.is_bool() && v.boolean(); }
bool number(Runtime&, const Value& v, Arguments&) { return v.is_number(); }
bool integer(Runtime&, const Value& v, Arguments&) { return is_real_int(v); }
bool is_float(Runtime&, const Value& v, Arguments&) { return v.is_float(); }
bool string(Runtime&, const Value& v, Arguments&) { return v.text() != nullptr; }
bool mapping(Runtime&, const Value& v, Arguments&) { return v.dict() != nullptr; }
bool callable(Runtime&, const Value& v, Arguments&) { return v.function() != nullptr; }

bool iterable(Runtime&, const Value& v, Arguments&) {
  return v.is_undefined() || v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr;
}

bool sequence(Runtime&, const Value& v, Arguments&) {
  if (const List* list = v.list()) {
    return list->form != ListForm::kView && list->form != ListForm::kGenerator;
  }
  return v.is_undefined() || v.text() != nullptr || v.dict() != nullptr;
}

bool divisible(Runtime& run, const Value& v, Arguments& arguments) {
  return !is_true(run.arithmetic("%", v, arguments.need("num")));
}
bool even(Runtime& run, const Value& v, Arguments&) {
  return !is_true(run.arithmetic("%", v, Value::of(int64_t{2})));
}
bool odd(Runtime& run, const Value& v, Arguments& arguments) { return !even(run, v, arguments); }

bool is_case(Runtime& run, const Value& value, Case form) {
  const Value text = run.str(value);
  run.budget().spend(static_cast<int64_t>(text.text()->bytes.size() / 8));
  const std::string& bytes = text.text()->bytes;
  return change_case(*text.text(), form).bytes == bytes &&
         change_case(*text.text(), form == Case::kLower ? Case::kUpper : Case::kLower).bytes !=
             bytes;
}
bool lower(Runtime& run, const Value& v, Arguments&) { return is_case(run, v, Case::kLower); }
bool upper(Runtime& run, const Value& v, Arguments&) { return is_case(run, v, Case::kUpper); }

bool in(Runtime& run, const Value& v, Arguments& a) { return run.contains(a.need("seq"), v); }
bool same_as(Runtime& run, const Value& v, Arguments& arguments) {
  const Value& other = arguments.need("other");
  if (v.list() != nullptr || v.dict() != nullptr) {
    return v.list() == other.list() && v.dict() == other.dict();
  }
  return type_name(v) == type_name(other) && equal(run.budget(), v, other);
}
bool eq(Runtime& run, const Value& v, Arguments& a) { return run.compares("==", v, a.need("b")); }
bool ne(Runtime& run, const Value& v, Arguments& a) { return run.compares("!=", v, a.need("b")); }
bool lt(Runtime& run, const Value& v, Arguments& a) { return run.compares("<", v, a.need("b")); }
bool le(Runtime& run, const Value& v, Arguments& a) { return run.compares("<=", v, a.need("b")); }
bool gt(Runtime& run, const Value& v, Arguments& a) { return run.compares(">", v, a.need("b")); }
bool ge(Runtime& run, const Value& v, Arguments& a) { return run.compares(">=", v, a.need("b")); }

bool filter(Runtime& run, const Value& v, Arguments&) {
  return find_filter(run.need_text(v).bytes) != nullptr;
}
bool test(Runtime& run, const Value& v, Arguments&) {
  return find_test(run.need_text(v).bytes) != nullptr;
}

constexpr std::pair<std::string_view, Test> kTests[] = {
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisible},
    {"eq", eq},
    {"equalto", eq},
    {"==", eq},
    {"even", even},
    {"false", is_false},
    {"filter", filter},
    {"float", is_float},
    {"ge", ge},
    {">=", ge},
    {"greaterthan", gt},
    {"gt", gt},
    {">", gt},
    {"in", in},
    {"integer", integer},
    {"iterable", iterable},
    {"le", le},
    {"<=", le},
    {"lessthan", lt},
    {"lower", lower},
    {"lt", lt},
    {"<", lt},
    {"mapping", mapping},
    {"ne", ne},
    {"!=", ne},
    {"none", none},
    {"number", number},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", sequence},
    {"string", string},
    {"test", test},
    {"true", is_really_true},
    {"undefined", undefined},
    {"upper", upper},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &std::pair<std::string_view, Test>::first);
  return found == std::end(kTests) ? nullptr : found->second;
}

}  // namespace runnel::jinja
