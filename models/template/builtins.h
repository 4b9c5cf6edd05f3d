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

// Null where there is none of this name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

// Whether Python has such a method of the object: `object.name` is then the method, also where a
// dict has a key of that name.
bool has_method(const Value& object, std::string_view name);
// Throws a Fault for a method that changes its object, or is not supported.
Value call_method(Runtime& run, const Value& object, const std::string& name, Arguments& arguments);

// str.replace(), str.strip() with "both", "left" or "right" side: filters have them as well.
enum class Side { kBoth, kLeft, kRight };
Value replaced(Runtime& run, const Text& text, Arguments& arguments);
Value stripped(Runtime& run, const Text& text, Arguments& arguments, Side side);

}  // namespace runnel::jinja
