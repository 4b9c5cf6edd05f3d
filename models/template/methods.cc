#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "models/template/builtins.h"
#include "models/template/python_text.h"

namespace runnel::jinja {
namespace {

// Python's methods: a name of this list means the method, even if it is not supported.
constexpr std::string_view kTextMethods[] = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::string_view kDictMethods[] = {"clear",      "copy",   "fromkeys", "get",
                                             "items",      "keys",   "pop",      "popitem",
                                             "setdefault", "update", "values"};
constexpr std::string_view kListMethods[] = {"append", "clear",   "copy",   "count",
                                             "extend", "index",   "insert", "pop",
                                             "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
// The methods that change a list or a dict.
constexpr std::string_view kChanging[] = {"append",     "clear",   "extend", "insert",
                                          "pop",        "popitem", "remove", "reverse",
                                          "setdefault", "sort",    "update"};

constexpr size_t kNowhere = std::string::npos;

// find() in linear time for all texts.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0) {
  if (from > text.size()) return kNowhere;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? kNowhere
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

int64_t count_of(const Value* limit) {
  if (limit == nullptr || limit->is_none()) return -1;
  if (!limit->is_int()) fail("a count is a " + type_name(*limit) + "; expected an integer");
  return limit->integer();
}

Value split_at_space(Runtime& run, const Text& text, int64_t most) {
  std::vector<Value> parts;
  const std::string_view all = text.bytes;
  size_t at = stripped_begin(all);
  while (at < all.size()) {
    size_t end = at;
    if (most >= 0 && std::ssize(parts) == most) {
      end = stripped_end(all, at);
      parts.push_back(run.part(text, at, end));
      break;
    }
    while (end < all.size() && !is_space(code_point_at(all, end).value)) {
      end += code_point_at(all, end).bytes;
    }
    parts.push_back(run.part(text, at, end));
    at = end + stripped_begin(all.substr(end));
  }
  return run.list(std::move(parts));
}

Value split(Runtime& run, const Text& text, Arguments& arguments) {
  const Value* between = arguments.take("sep");
  const int64_t most = count_of(arguments.take("maxsplit"));
  run.budget().spend_on_bytes(text.bytes.size());
  if (between == nullptr || between->is_none()) return split_at_space(run, text, most);
  const std::string& sep = run.need_text(*between).bytes;
  if (sep.empty()) fail("empty separator");
  std::vector<Value> parts;
  size_t begin = 0;
  size_t end = find_text(text.bytes, sep);
  while (end != kNowhere && (most < 0 || std::ssize(parts) < most)) {
    parts.push_back(run.part(text, begin, end));
    begin = end + sep.size();
    end = find_text(text.bytes, sep, begin);
  }
  parts.push_back(run.part(text, begin, text.bytes.size()));
  return run.list(std::move(parts));
}

Value rsplit(Runtime& run, const Text& text, Arguments& arguments) {
  const Value* between = arguments.take("sep");
  const int64_t most = count_of(arguments.take("maxsplit"));
  if (between == nullptr || between->is_none()) {
    if (most >= 0) fail("rsplit with a limit needs a separator here");
    return split_at_space(run, text, most);
  }
  const std::string& sep = run.need_text(*between).bytes;
  if (sep.empty()) fail("empty separator");
  Memory memory(&run.budget());
  std::vector<size_t> found;  // positions of the separator
  // Searches backwards, because occurrences must not overlap, counted from the right.
  size_t end = text.bytes.size();
  while (end >= sep.size() && (most < 0 || std::ssize(found) < most)) {
    const size_t at = std::string_view(text.bytes).substr(0, end).rfind(sep);
    run.budget().spend_on_bytes((at == kNowhere ? end : end - at) * sep.size());
    if (at == kNowhere) break;
    memory.grow(2 * sizeof(size_t));  // the vector doubles
    found.push_back(at);
    end = at;
  }
  std::vector<Value> parts;
  size_t begin = 0;
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    parts.push_back(run.part(text, begin, *at));
    begin = *at + sep.size();
  }
  parts.push_back(run.part(text, begin, text.bytes.size()));
  return run.list(std::move(parts));
}

Value splitlines(Runtime& run, const Text& text, Arguments& arguments) {
  const bool keep = arguments.flag("keepends", false);
  std::vector<Value> lines;
  const std::string_view all = text.bytes;
  run.budget().spend(static_cast<int64_t>(all.size() / 8));
  size_t begin = 0;
  for (size_t at = 0; at < all.size();) {
    const CodePoint c = code_point_at(all, at);
    const size_t end = at;
    at += c.bytes;
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) ||
                      (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                      c.value == 0x2028 || c.value == 0x2029;
    if (!ends) continue;
    if (c.value == '\r' && at < all.size() && all[at] == '\n') ++at;
    lines.push_back(run.part(text, begin, keep ? at : end));
    begin = at;
  }
  if (begin < all.size()) lines.push_back(run.part(text, begin, all.size()));
  return run.list(std::move(lines));
}

Value partition(Runtime& run, const Text& text, Arguments& arguments) {
  const std::string& sep = run.need_text(arguments.need("sep")).bytes;
  if (sep.empty()) fail("empty separator");
  run.budget().spend_on_bytes(text.bytes.size());
  const size_t size = text.bytes.size();
  const size_t at = find_text(text.bytes, sep);
  const size_t begin = at == kNowhere ? size : at;
  const size_t end = at == kNowhere ? size : at + sep.size();
  return run.list({run.part(text, 0, begin), run.part(text, begin, end), run.part(text, end, size)},
                  ListForm::kTuple);
}

// startswith() and endswith(), of one text or a tuple of them.
Value begins_or_ends(Runtime& run, const Text& text, Arguments& arguments, bool begins) {
  const Value& with = arguments.need("prefix");
  const auto fits = [&](const Value& part) {
    const std::string& other = run.need_text(part).bytes;
    run.budget().spend_on_bytes(other.size());
    return begins ? text.bytes.starts_with(other) : text.bytes.ends_with(other);
  };
  if (with.list() == nullptr || with.list()->form != ListForm::kTuple) return Value::of(fits(with));
  return Value::of(std::ranges::any_of(with.list()->items, fits));
}

Value found(Runtime& run, const Text& text, Arguments& arguments, const std::string& name) {
  const std::string& part = run.need_text(arguments.need("sub")).bytes;
  run.budget().spend_on_bytes(text.bytes.size());
  size_t at = kNowhere;
  if (name == "find" || name == "index") {
    at = find_text(text.bytes, part);
  } else {
    run.budget().spend_on_bytes(text.bytes.size() * part.size());
    at = text.bytes.rfind(part);
  }
  if (at == kNowhere && name.ends_with("index")) fail("substring not found");
  return Value::of(at == kNowhere ? int64_t{-1}
                                  : jinja::length(std::string_view(text.bytes).substr(0, at)));
}

Value counted(Runtime& run, const Text& text, Arguments& arguments) {
  const std::string& part = run.need_text(arguments.need("sub")).bytes;
  run.budget().spend_on_bytes(text.bytes.size());
  if (part.empty()) return Value::of(jinja::length(text.bytes) + 1);
  int64_t count = 0;
  for (size_t at = find_text(text.bytes, part); at != kNowhere;
       at = find_text(text.bytes, part, at + part.size())) {
    ++count;
  }
  return Value::of(count);
}

Value without(Runtime& run, const Text& text, Arguments& arguments, bool prefix) {
  const std::string& part = run.need_text(arguments.need("prefix")).bytes;
  const size_t size = text.bytes.size();
  if (prefix) return run.part(text, text.bytes.starts_with(part) ? part.size() : 0, size);
  return run.part(text, 0, text.bytes.ends_with(part) ? size - part.size() : size);
}

Value joined(Runtime& run, const Text& between, Arguments& arguments) {
  MarkedText marked;
  bool first = true;
  for (const Value& item : run.items(arguments.need("iterable"))) {
    const Text& part = run.need_text(item);
    run.budget().spend(1);
    run.budget().spend_on_bytes(between.bytes.size() + part.bytes.size());
    run.budget().expect_room(marked, between.bytes.size() + part.bytes.size());
    if (!first) marked.append(between);
    marked.append(part);
    first = false;
  }
  return run.text(std::move(marked));
}

// "{}", "{0}" and "{name}" without a format after them.
Value formatted(Runtime& run, const Text& text, Arguments& arguments) {
  MarkedText marked;
  const std::string& all = text.bytes;
  size_t next = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t brace = std::min(all.find_first_of("{}", at), all.size());
    run.budget().spend(1);
    run.budget().expect_room(marked, brace - at + 1);
    marked.append(text, at, brace);
    if (brace == all.size()) break;
    if (brace + 1 < all.size() && all[brace + 1] == all[brace]) {
      marked.append(text, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t end = all[brace] == '{' ? all.find('}', brace) : kNowhere;
    if (end == kNowhere) fail("a single brace in a format");
    const std::string field = all.substr(brace + 1, end - brace - 1);
    const bool number = field.empty() || field.find_first_not_of("0123456789") == kNowhere;
    const Value* value = nullptr;
    if (number && field.size() < 6) {
      const size_t index = field.empty() ? next++ : std::stoul(field);
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [key, given] : arguments.named) value = key == field ? &given : value;
    }
    if (value == nullptr) fail("the field " + quote(field, 40) + " of a format has no value");
    append_str(run.budget(), marked, *value);
    at = end + 1;
  }
  arguments = {};
  return run.text(std::move(marked));
}

// Whether there are any characters, and all of them are of a kind.
template <typename Is>
Value all_are(Runtime& run, const Text& text, const Is& is) {
  run.budget().spend(static_cast<int64_t>(text.bytes.size() / 8));
  size_t at = 0;
  while (at < text.bytes.size() && is(code_point_at(text.bytes, at).value)) {
    at += code_point_at(text.bytes, at).bytes;
  }
  return Value::of(at == text.bytes.size() && at > 0);
}

Value cased(Runtime& run, const Text& text, Case to) {
  run.budget().spend(static_cast<int64_t>(text.bytes.size() / 8));
  return run.text(change_case(text, to));
}

[[noreturn]] void refuse(const std::string& type, const std::string& name) {
  fail("the method " + quote(name, 40) + " of " + type + " is not supported");
}

Value text_method(Runtime& run, const Text& text, const std::string& name, Arguments& a) {
  if (name == "split") return split(run, text, a);
  if (name == "rsplit") return rsplit(run, text, a);
  if (name == "splitlines") return splitlines(run, text, a);
  if (name == "partition") return partition(run, text, a);
  if (name == "strip") return stripped(run, text, a, Side::kBoth);
  if (name == "lstrip") return stripped(run, text, a, Side::kLeft);
  if (name == "rstrip") return stripped(run, text, a, Side::kRight);
  if (name == "startswith") return begins_or_ends(run, text, a, true);
  if (name == "endswith") return begins_or_ends(run, text, a, false);
  if (name == "replace") return replaced(run, text, a);
  if (name == "join") return joined(run, text, a);
  if (name == "format") return formatted(run, text, a);
  if (name == "count") return counted(run, text, a);
  if (name == "removeprefix") return without(run, text, a, true);
  if (name == "removesuffix") return without(run, text, a, false);
  if (name == "lower") return cased(run, text, Case::kLower);
  if (name == "upper") return cased(run, text, Case::kUpper);
  if (name == "title") return cased(run, text, Case::kTitle);
  if (name == "capitalize") return cased(run, text, Case::kCapital);
  if (name == "find" || name == "index" || name == "rfind" || name == "rindex") {
    return found(run, text, a, name);
  }
  if (name == "isspace") return all_are(run, text, is_space);
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric") {
    return all_are(run, text, [](int32_t c) { return c >= '0' && c <= '9'; });
  }
  refuse("str", name);
}

Value dict_method(Runtime& run, const Value& self, const std::string& name, Arguments& arguments) {
  const Dict& dict = *self.dict();
  if (name == "get") {
    const Value& key = arguments.need("key");
    const Value* otherwise = arguments.take("default");
    const Value* member = find(run.budget(), dict, key);
    if (member != nullptr) return *member;
    return otherwise == nullptr ? Value::none() : *otherwise;
  }
  if (name == "copy") return run.dict(dict.members);
  if (name != "items" && name != "keys" && name != "values") refuse("dict", name);
  std::vector<Value> all;
  for (const auto& [key, value] : dict.members) {
    run.budget().spend(1);
    all.push_back(name == "keys"     ? key
                  : name == "values" ? value
                                     : run.list({key, value}, ListForm::kTuple));
  }
  return run.list(std::move(all), ListForm::kView);
}

Value list_method(Runtime& run, const List& list, const std::string& name, Arguments& arguments) {
  if (name == "copy") return run.list(list.items);
  if (name != "count" && name != "index") refuse("list", name);
  const Value& wanted = arguments.need("value");
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!equal(run.budget(), list.items[i], wanted)) continue;
    if (name == "index") return Value::of(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") fail("the value is not in the list");
  return Value::of(count);
}

template <size_t N>
bool has(const std::string_view (&names)[N], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) return has(kTextMethods, name);
  if (object.dict() != nullptr) return has(kDictMethods, name);
  if (const List* list = object.list()) {
    return list->form == ListForm::kList
               ? has(kListMethods, name)
               : list->form == ListForm::kTuple && has(kTupleMethods, name);
  }
  return false;
}

Value call_method(Runtime& run, const Value& object, const std::string& name,
                  Arguments& arguments) {
  run.budget().spend(1);
  if (object.text() == nullptr && has(kChanging, name)) {
    fail("a template may not change a " + type_name(object) + ": " + quote(name, 40) +
         " is refused");
  }
  Value result = object.text() != nullptr   ? text_method(run, *object.text(), name, arguments)
                 : object.dict() != nullptr ? dict_method(run, object, name, arguments)
                                            : list_method(run, *object.list(), name, arguments);
  arguments.end();
  return result;
}

Value replaced(Runtime& run, const Text& text, Arguments& arguments) {
  const Value from_value = run.str(arguments.need("old"));
  const Value to_value = run.str(arguments.need("new"));
  const int64_t most = count_of(arguments.take("count"));
  const std::string& from = from_value.text()->bytes;
  const Text& to = *to_value.text();
  MarkedText marked;
  const std::string& all = text.bytes;
  run.budget().spend_on_bytes(all.size());
  size_t kept = 0;  // the text up to here is written
  size_t at = find_text(all, from);
  for (int64_t done = 0; at != kNowhere && (most < 0 || done < most); ++done) {
    run.budget().spend(1);
    run.budget().spend_on_bytes(to.bytes.size());
    run.budget().expect_room(marked, at - kept + to.bytes.size());
    marked.append(text, kept, at);
    marked.append(to);
    kept = at;
    if (!from.empty()) {
      kept += from.size();
      at = find_text(all, from, kept);
    } else {  // before every character, and at the end
      at = at < all.size() ? at + code_point_at(all, at).bytes : kNowhere;
    }
  }
  marked.append(text, kept, all.size());
  return run.text(std::move(marked));
}

Value stripped(Runtime& run, const Text& text, Arguments& arguments, Side side) {
  const Value* given = arguments.take("chars");
  const bool space = given == nullptr || given->is_none();
  const std::string_view chars = space ? "" : std::string_view(run.need_text(*given).bytes);
  const std::string_view all = text.bytes;
  run.budget().spend_on_bytes(all.size() * (1 + chars.size() / 16));
  size_t begin = 0;
  size_t end = all.size();
  if (side != Side::kRight) begin = space ? stripped_begin(all) : stripped_begin(all, chars);
  if (side != Side::kLeft) end = space ? stripped_end(all, begin) : stripped_end(all, begin, chars);
  return run.part(text, begin, end);
}

}  // namespace runnel::jinja
