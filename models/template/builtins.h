// The filters, tests, methods and functions that templates may use.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/runtime.h"
#include "models/template/value.h"

namespace runnel::jinja {

using Filter = Value (*)(Runtime& run, const Value& value, Arguments& arguments);
using Test = bool (*)(Runtime& run, const Value& value, Arguments& arguments);

// Null if no builtin has this name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

// Whether the object has a method of this name in Python. `object.name` is then the method, even if
// a dict has a key of that name.
bool has_method(const Value& object, std::string_view name);
// Calls a method. Throws a Fault if the method changes its object, or is not supported.
Value call_method(Runtime& run, const Value& object, const std::string& name, Arguments& arguments);

// str.replace(), and str.strip() of "both", the "left" or the "right" side. Filters use them, too.
enum class Side { kBoth, kLeft, kRight };
Value replaced(Runtime& run, const Text& text, Arguments& arguments);
Value stripped(Runtime& run, const Text& text, Arguments& arguments, Side side);

}  // namespace runnel::jinja
