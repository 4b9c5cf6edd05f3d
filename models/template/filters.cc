#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "models/template/builtins.h"
#include "models/template/python_text.h"

namespace runnel::jinja {
namespace {

Value to_case(Runtime& run, const Value& value, Case to) {
  const Value text = run.str(value);
  run.budget().spend(static_cast<int64_t>(text.text()->bytes.size() / 8));
  return run.text(change_case(*text.text(), to));
}

Value lower(Runtime& run, const Value& v, Arguments&) { return to_case(run, v, Case::kLower); }
Value upper(Runtime& run, const Value& v, Arguments&) { return to_case(run, v, Case::kUpper); }
Value title(Runtime& run, const Value& v, Arguments&) { return to_case(run, v, Case::kWords); }
Value capitalize(Runtime& run, const Value& v, Arguments&) {
  return to_case(run, v, Case::kCapital);
}

Value string(Runtime& run, const Value& value, Arguments&) { return run.str(value); }

Value trim(Runtime& run, const Value& value, Arguments& arguments) {
  const Value text = run.str(value);
  return stripped(run, *text.text(), arguments, Side::kBoth);
}

Value replace(Runtime& run, const Value& value, Arguments& arguments) {
  const Value text = run.str(value);
  return replaced(run, *text.text(), arguments);
}

Value length(Runtime& run, const Value& value, Arguments&) { return Value::of(run.length(value)); }

Value list(Runtime& run, const Value& value, Arguments&) { return run.list(run.items(value)); }

Value default_value(Runtime& run, const Value& value, Arguments& arguments) {
  const Value* given = arguments.take("default_value");
  const bool boolean = arguments.flag("boolean", false);
  if (!value.is_undefined() && !(boolean && !is_true(value))) return value;
  return given == nullptr ? run.text("") : *given;
}

Value tojson(Runtime& run, const Value& value, Arguments& arguments) {
  JsonForm form;
  form.ascii = arguments.flag("ensure_ascii", false);
  if (const Value* indent = arguments.take("indent"); indent != nullptr && !indent->is_none()) {
    form.lines = true;
    form.between_items = ",";
    if (const Text* text = indent->text()) {
      form.indent = text->bytes;
    } else if (indent->is_int() || indent->is_bool()) {
      if (indent->integer() > 256) fail("tojson indents by more than 256 spaces");
      form.indent.assign(static_cast<size_t>(std::max<int64_t>(0, indent->integer())), ' ');
    } else {
      fail("the indent of tojson is a " + type_name(*indent));
    }
  }
  if (const Value* two = arguments.take("separators"); two != nullptr && !two->is_none()) {
    const List* pair = two->list();
    if (pair == nullptr || pair->items.size() != 2) fail("separators are not a pair of strings");
    form.between_items = run.need_text(pair->items[0]).bytes;
    form.after_key = run.need_text(pair->items[1]).bytes;
  }
  form.sorted = arguments.flag("sort_keys", false);
  MarkedText marked;
  append_json(run.budget(), marked, value, form);
  return run.text(std::move(marked));
}

Value join(Runtime& run, const Value& value, Arguments& arguments) {
  const Value* between = arguments.take("d");
  const Value* attribute = arguments.take("attribute");
  MarkedText marked;
  bool first = true;
  for (const Value& item : run.items(value)) {
    run.budget().spend(1);
    if (!first && between != nullptr) append_str(run.budget(), marked, *between);
    first = false;
    const bool whole = attribute == nullptr || attribute->is_none();
    append_str(run.budget(), marked, whole ? item : run.attribute_path(item, *attribute));
  }
  return run.text(std::move(marked));
}

std::vector<Value> pairs(Runtime& run, const Dict& dict) {
  std::vector<Value> all;
  for (const auto& [key, value] : dict.members) {
    run.budget().spend(1);
    all.push_back(run.list({key, value}, ListForm::kTuple));
  }
  return all;
}

Value items(Runtime& run, const Value& value, Arguments&) {
  if (value.is_undefined()) return run.list({}, ListForm::kGenerator);
  if (value.dict() == nullptr) fail("Can only get item pairs from a mapping.");
  return run.list(pairs(run, *value.dict()), ListForm::kGenerator);
}

// Sorts values by keys. Not std::sort on the values, because a fault may leave the sort at any
// comparison.
std::vector<Value> sorted(Runtime& run, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? compare(run.budget(), b.first, a.first) < 0
                   : compare(run.budget(), a.first, b.first) < 0;
  });
  std::vector<Value> all;
  for (auto& [key, value] : keyed) all.push_back(std::move(value));
  return all;
}

Value sort(Runtime& run, const Value& value, Arguments& arguments) {
  const bool reverse = arguments.flag("reverse", false);
  const bool case_sensitive = arguments.flag("case_sensitive", false);
  const Value* attribute = arguments.take("attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : run.items(value)) {
    Value key = sort_key(run, item, attribute, case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  return run.list(sorted(run, std::move(keyed), reverse));
}

Value dictsort(Runtime& run, const Value& value, Arguments& arguments) {
  if (value.dict() == nullptr) fail("dictsort takes a dict, not a " + type_name(value));
  const bool case_sensitive = arguments.flag("case_sensitive", false);
  const Value* by = arguments.take("by");
  const bool by_value = by != nullptr && run.need_text(*by).bytes == "value";
  const bool reverse = arguments.flag("reverse", false);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& pair : pairs(run, *value.dict())) {
    const Value& part = pair.list()->items[by_value ? 1 : 0];
    keyed.emplace_back(sort_key(run, part, nullptr, case_sensitive), std::move(pair));
  }
  return run.list(sorted(run, std::move(keyed), reverse));
}

Value unique(Runtime& run, const Value& value, Arguments& arguments) {
  const bool case_sensitive = arguments.flag("case_sensitive", false);
  const Value* attribute = arguments.take("attribute");
  std::vector<Value> keys;
  std::vector<Value> all;
  for (Value& item : run.items(value)) {
    Value key = sort_key(run, item, attribute, case_sensitive);
    if (std::ranges::any_of(keys, [&](const Value& k) { return equal(run.budget(), k, key); })) {
      continue;
    }
    keys.push_back(std::move(key));
    all.push_back(std::move(item));
  }
  return run.list(std::move(all), ListForm::kGenerator);
}

Value extreme(Runtime& run, const Value& value, Arguments& arguments, int sign) {
  const bool case_sensitive = arguments.flag("case_sensitive", false);
  const Value* attribute = arguments.take("attribute");
  Value best = run.undefined("No aggregated item, sequence was empty.");
  Value best_key;
  bool first = true;
  for (Value& item : run.items(value)) {
    Value key = sort_key(run, item, attribute, case_sensitive);
    if (first || sign * compare(run.budget(), key, best_key) > 0) {
      best = std::move(item);
      best_key = std::move(key);
    }
    first = false;
  }
  return best;
}

Value min(Runtime& run, const Value& v, Arguments& a) { return extreme(run, v, a, -1); }
Value max(Runtime& run, const Value& v, Arguments& a) { return extreme(run, v, a, 1); }

Value first(Runtime& run, const Value& value, Arguments&) {
  std::vector<Value> all = run.items(value);
  return all.empty() ? run.undefined("No first item, sequence was empty.") : all.front();
}

Value last(Runtime& run, const Value& value, Arguments&) {
  if (value.list() != nullptr && value.list()->form == ListForm::kGenerator) {
    fail("'generator' object is not reversible");
  }
  std::vector<Value> all = run.items(value);
  return all.empty() ? run.undefined("No last item, sequence was empty.") : all.back();
}

Value reverse(Runtime& run, const Value& value, Arguments&) {
  if (value.text() != nullptr) {
    return run.slice(value, Value::none(), Value::none(), Value::of(int64_t{-1}));
  }
  std::vector<Value> all = run.items(value);
  std::ranges::reverse(all);
  return run.list(std::move(all), ListForm::kGenerator);
}

Value sum(Runtime& run, const Value& value, Arguments& arguments) {
  const Value* attribute = arguments.take("attribute");
  const Value* start = arguments.take("start");
  Value total = start == nullptr ? Value::of(int64_t{0}) : *start;
  for (const Value& item : run.items(value)) {
    const bool whole = attribute == nullptr || attribute->is_none();
    total = run.arithmetic("+", total, whole ? item : run.attribute_path(item, *attribute));
  }
  return total;
}

Value map(Runtime& run, const Value& value, Arguments& arguments) {
  std::vector<Value> all;
  if (arguments.positional.empty()) {
    const Value& attribute = arguments.need("attribute");
    const Value* otherwise = arguments.take("default");
    for (const Value& item : run.items(value)) {
      run.budget().spend(1);
      Value member = run.attribute_path(item, attribute);
      all.push_back(member.is_undefined() && otherwise != nullptr ? *otherwise : member);
    }
  } else {
    const std::string name = run.need_text(arguments.need("filter")).bytes;
    const Arguments others = arguments.rest();
    for (const Value& item : run.items(value)) all.push_back(run.filter(name, item, others));
  }
  return run.list(std::move(all), ListForm::kGenerator);
}

// select, reject, selectattr and rejectattr: the items whose test gives `wanted`.
Value chosen(Runtime& run, const Value& value, Arguments& arguments, bool by_attribute,
             bool wanted) {
  const Value attribute = by_attribute ? arguments.need("attribute") : Value();
  const Value* named = arguments.take("test");
  const std::string test = named == nullptr ? "" : run.need_text(*named).bytes;
  const Arguments others = arguments.rest();
  std::vector<Value> all;
  for (const Value& item : run.items(value)) {
    run.budget().spend(1);
    const Value member = by_attribute ? run.attribute_path(item, attribute) : item;
    if ((test.empty() ? is_true(member) : run.test(test, member, others)) == wanted) {
      all.push_back(item);
    }
  }
  return run.list(std::move(all), ListForm::kGenerator);
}

Value select(Runtime& r, const Value& v, Arguments& a) { return chosen(r, v, a, false, true); }
Value reject(Runtime& r, const Value& v, Arguments& a) { return chosen(r, v, a, false, false); }
Value selectattr(Runtime& r, const Value& v, Arguments& a) { return chosen(r, v, a, true, true); }
Value rejectattr(Runtime& r, const Value& v, Arguments& a) { return chosen(r, v, a, true, false); }

// float() of a text; none if it is not a number. strtod() also reads "0x10" and "nan(1)".
std::optional<double> float_of(const std::string& text) {
  const size_t begin = stripped_begin(text);
  const std::string number = text.substr(begin, stripped_end(text, begin) - begin);
  if (number.empty() || number.find_first_of("xX(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  return end == number.c_str() + number.size() ? std::optional(value) : std::nullopt;
}

Value to_int(Runtime& run, const Value& value, Arguments& arguments) {
  const int64_t otherwise = arguments.integer("default", 0);
  const int64_t base = arguments.integer("base", 10);
  if (value.is_undefined()) fail(*value.undefined().why);
  if (value.is_bool() || value.is_int()) return Value::of(value.integer());
  double number = 0.0;
  if (value.is_float()) {
    number = value.number();
  } else if (const Text* text = value.text()) {
    const size_t begin = stripped_begin(text->bytes);
    const std::string digits = text->bytes.substr(begin, stripped_end(text->bytes, begin) - begin);
    run.budget().spend_on_bytes(digits.size());
    if (digits.empty()) return Value::of(otherwise);
    char* end = nullptr;
    if (base >= 2 && base <= 36) {  // for other bases, strtoll() does not set the end
      errno = 0;
      const int64_t whole = std::strtoll(digits.c_str(), &end, static_cast<int>(base));
      if (*end == '\0' && errno == 0) return Value::of(whole);
    }
    const auto real = float_of(digits);
    if (!real) return Value::of(otherwise);
    number = *real;
  } else {
    return Value::of(otherwise);
  }
  if (!(std::abs(number) < 9.2e18)) return Value::of(otherwise);
  return Value::of(static_cast<int64_t>(number));
}

Value to_float(Runtime& run, const Value& value, Arguments& arguments) {
  const Value* given = arguments.take("default");
  const Value otherwise = given == nullptr ? Value::of(0.0) : *given;
  if (value.is_undefined()) fail(*value.undefined().why);
  if (value.is_number()) return Value::of(value.number());
  const Text* text = value.text();
  if (text == nullptr || text->bytes.empty()) return otherwise;
  run.budget().spend_on_bytes(text->bytes.size());
  const auto number = float_of(text->bytes);
  return number ? Value::of(*number) : otherwise;
}

Value absolute(Runtime& run, const Value& value, Arguments&) {
  if (!value.is_number()) fail("bad operand type for abs(): '" + type_name(value) + "'");
  if (value.is_float()) return Value::of(std::abs(value.number()));
  return value.integer() < 0 ? run.negative(value) : Value::of(value.integer());
}

Value round(Runtime&, const Value& value, Arguments& arguments) {
  const int64_t precision = arguments.integer("precision", 0);
  const Value* named = arguments.take("method");
  const std::string method =
      named == nullptr || named->text() == nullptr ? "common" : named->text()->bytes;
  if (!value.is_number()) fail("round takes a number, not a " + type_name(value));
  if (precision < 0 || precision > 15) fail("round takes 0 to 15 digits");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::of(std::ceil(value.number() * scale) / scale);
  if (method == "floor") return Value::of(std::floor(value.number() * scale) / scale);
  return Value::of(
      std::strtod(fixed(value.number(), static_cast<int>(precision)).c_str(), nullptr));
}

// The lines of a text, without their ends, as by str.splitlines() after a newline was added. Counts
// their memory in `memory`.
std::vector<std::pair<size_t, size_t>> lines_of(const std::string& text, Memory& memory) {
  std::vector<std::pair<size_t, size_t>> lines;
  const auto count = static_cast<size_t>(std::ranges::count(text, '\n')) + 1;
  memory.grow(count * sizeof(lines[0]));
  lines.reserve(count);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.emplace_back(begin, end);
    begin = end + 1;
  }
  lines.emplace_back(begin, text.size());
  return lines;
}

Value indent(Runtime& run, const Value& value, Arguments& arguments) {
  const Value* width = arguments.take("width");
  const bool first = arguments.flag("first", false);
  const bool blank = arguments.flag("blank", false);
  std::string space(4, ' ');
  if (width != nullptr && width->text() != nullptr) {
    space = width->text()->bytes;
  } else if (width != nullptr) {
    if (!width->is_int() || width->integer() > 256) fail("indent takes a width of at most 256");
    space.assign(static_cast<size_t>(std::max<int64_t>(0, width->integer())), ' ');
  }
  const Value text = run.str(value);
  Memory memory(&run.budget());
  MarkedText marked;
  bool inner = false;
  for (const auto& [begin, end] : lines_of(text.text()->bytes, memory)) {
    run.budget().spend(1);
    run.budget().spend_on_bytes(end - begin + space.size());
    run.budget().expect_room(marked, end - begin + space.size() + 1);
    if (inner) marked.append("\n", Writer::kTemplate);
    if (inner ? blank || end > begin : first) marked.append(space, Writer::kTemplate);
    marked.append(*text.text(), begin, end);
    inner = true;
  }
  return run.text(std::move(marked));
}

Value escape(Runtime& run, const Value& value, Arguments&) {
  const Value text = run.str(value);
  MarkedText marked;
  run.budget().spend(static_cast<int64_t>(text.text()->bytes.size() / 8));
  run.budget().expect_room(marked, 5 * text.text()->bytes.size());
  for (size_t at = 0; at < text.text()->bytes.size(); ++at) {
    const char c = text.text()->bytes[at];
    const std::string_view code = c == '&'    ? "&amp;"
                                  : c == '<'  ? "&lt;"
                                  : c == '>'  ? "&gt;"
                                  : c == '\'' ? "&#39;"
                                  : c == '"'  ? "&#34;"
                                              : "";
    if (code.empty()) {
      marked.append(*text.text(), at, at + 1);
    } else {
      marked.append(code, text.text()->writer_at(at));
    }
  }
  return run.text(std::move(marked));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"abs", absolute},
    {"capitalize", capitalize},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", first},
    {"float", to_float},
    {"indent", indent},
    {"int", to_int},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"lower", lower},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", reject},
    {"rejectattr", rejectattr},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round},
    {"safe", string},
    {"select", select},
    {"selectattr", selectattr},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", upper},
};

}  // namespace

Filter find_filter(std::string_view name) {
  const auto* found =
      std::ranges::find(kFilters, name, &std::pair<std::string_view, Filter>::first);
  return found == std::end(kFilters) ? nullptr : found->second;
}

}  // namespace runnel::jinja
