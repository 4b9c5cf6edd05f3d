#include "models/template/value.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/template/python_text.h"

namespace runnel::jinja {
namespace {

constexpr size_t kSimpleBytes = 32;  // of None, a boolean or a number, with the separator after it

bool same_text(const Text* a, const Text* b) { return a->bytes == b->bytes; }

bool equal_lists(Budget& budget, const List& a, const List& b) {
  if (a.form != b.form || a.items.size() != b.items.size()) return false;
  return std::ranges::equal(a.items, b.items,
                            [&](const Value& x, const Value& y) { return equal(budget, x, y); });
}

bool equal_dicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.members.size() != b.members.size()) return false;
  return std::ranges::all_of(a.members, [&](const auto& member) {
    const Value* other = find(budget, b, member.first);
    return other != nullptr && equal(budget, member.second, *other);
  });
}

void append_plain(MarkedText& to, std::string_view text) { to.append(text, Writer::kTemplate); }

// Appends None, a boolean or a number. Returns false for any other value.
bool append_simple(MarkedText& to, const Value& value) {
  if (value.is_none()) return append_plain(to, "None"), true;
  if (value.is_bool()) return append_plain(to, value.boolean() ? "True" : "False"), true;
  if (value.is_int()) return append_plain(to, std::to_string(value.integer())), true;
  if (value.is_float()) return append_plain(to, float_text(value.number())), true;
  return false;
}

void append_python_repr(Budget& budget, MarkedText& to, const Value& value) {
  budget.spend(1);
  budget.expect_room(to, kSimpleBytes);
  if (append_simple(to, value)) return;
  if (value.is_undefined()) return append_plain(to, "Undefined");
  if (const Text* text = value.text()) {
    budget.spend_on_bytes(text->bytes.size());
    budget.expect_room(to, 4 * text->bytes.size());
    return append_repr(to, *text);
  }
  if (const List* list = value.list()) {
    if (list->form != ListForm::kList && list->form != ListForm::kTuple) {
      fail("a value of type '" + type_name(value) + "' cannot be written");
    }
    const bool tuple = list->form == ListForm::kTuple;
    append_plain(to, tuple ? "(" : "[");
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) append_plain(to, ", ");
      append_python_repr(budget, to, list->items[i]);
    }
    return append_plain(to, !tuple ? "]" : list->items.size() == 1 ? ",)" : ")");
  }
  const Dict* dict = value.dict();
  if (dict == nullptr) fail("a value of type '" + type_name(value) + "' cannot be written");
  append_plain(to, "{");
  for (size_t i = 0; i < dict->members.size(); ++i) {
    if (i > 0) append_plain(to, ", ");
    append_python_repr(budget, to, dict->members[i].first);
    append_plain(to, ": ");
    append_python_repr(budget, to, dict->members[i].second);
  }
  append_plain(to, "}");
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, MarkedText& to, const JsonForm& form)
      : budget_(budget), to_(to), form_(form) {}

  void write(const Value& value) {
    budget_.spend(1);
    if (value.is_none()) return append_plain(to_, "null");
    if (value.is_bool()) return append_plain(to_, value.boolean() ? "true" : "false");
    if (value.is_int()) return append_plain(to_, std::to_string(value.integer()));
    if (value.is_float()) return append_plain(to_, number(value.number()));
    if (const Text* text = value.text()) {
      budget_.spend_on_bytes(text->bytes.size());
      budget_.expect_room(to_, 6 * text->bytes.size());  // each byte may become \u0001
      return append_json(to_, *text, form_.ascii);
    }
    if (const List* list = value.list();
        list != nullptr && (list->form == ListForm::kList || list->form == ListForm::kTuple)) {
      return structure("[", "]", list->items, [&](const Value& item) { write(item); });
    }
    if (const Dict* dict = value.dict()) return object(*dict);
    fail("Object of type " + type_name(value) + " is not JSON serializable");
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  template <typename Items, typename Write>
  void structure(std::string_view open, std::string_view close, const Items& items,
                 const Write& write_item) {
    append_plain(to_, open);
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) separator(form_.between_items);
      line();
      write_item(items[i]);
    }
    --level_;
    if (!items.empty()) line();
    append_plain(to_, close);
  }

  void object(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> members;
    members.reserve(dict.members.size());
    for (const auto& member : dict.members) members.push_back(&member);
    if (form_.sorted) {
      std::ranges::stable_sort(members, [&](const auto* a, const auto* b) {
        return compare(budget_, a->first, b->first) < 0;
      });
    }
    structure("{", "}", members, [&](const std::pair<Value, Value>* member) {
      key(member->first);
      separator(form_.after_key);
      write(member->second);
    });
  }

  void key(const Value& value) {
    if (value.text() != nullptr) return write(value);
    if (!value.is_number() && !value.is_none()) fail("a key of JSON is a " + type_name(value));
    append_plain(to_, "\"");
    write(value);
    append_plain(to_, "\"");
  }

  void line() {
    if (!form_.lines) return;
    append_plain(to_, "\n");
    for (int i = 0; i < level_; ++i) separator(form_.indent);
  }

  // The template chooses the separator's text, and so its length.
  void separator(std::string_view text) {
    budget_.spend_on_bytes(text.size());
    budget_.expect_room(to_, text.size());
    append_plain(to_, text);
  }

  Budget& budget_;
  MarkedText& to_;
  const JsonForm& form_;
  int level_ = 0;
};

}  // namespace

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (value.function() != nullptr) return "function";
  if (value.space() != nullptr) return "Namespace";
  switch (value.list()->form) {
    case ListForm::kList:
      return "list";
    case ListForm::kTuple:
      return "tuple";
    case ListForm::kRange:
      return "range";
    case ListForm::kView:
      return "dict view";
    case ListForm::kGenerator:
      return "generator";
  }
  return "";
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_float()) return value.number() != 0.0;
  if (value.is_number()) return value.integer() != 0;
  if (const Text* text = value.text()) return !text->bytes.empty();
  if (const Dict* dict = value.dict()) return !dict->members.empty();
  if (const List* list = value.list()) {
    return list->form == ListForm::kGenerator || !list->items.empty();
  }
  return true;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.spend(1);
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.number() == b.number() : a.integer() == b.integer();
  }
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.text() != nullptr && b.text() != nullptr) {
    budget.spend_on_bytes(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return same_text(a.text(), b.text());
  }
  if (a.list() != nullptr && b.list() != nullptr) return equal_lists(budget, *a.list(), *b.list());
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_dicts(budget, *a.dict(), *b.dict());
  if (a.space() != nullptr) return a.space() == b.space();
  return a.function() != nullptr && a.function() == b.function();
}

int compare(Budget& budget, const Value& a, const Value& b) {
  budget.spend(1);
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) {
      return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
    }
    return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    budget.spend_on_bytes(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return a.text()->bytes.compare(b.text()->bytes);
  }
  if (a.list() != nullptr && b.list() != nullptr && a.list()->form == b.list()->form) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(budget, x[i], y[i])) return compare(budget, x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail(*value->undefined().why);
  }
  fail("'" + type_name(a) + "' and '" + type_name(b) + "' have no order");
}

const Value* find(Budget& budget, const Dict& dict, const Value& key) {
  budget.spend(static_cast<int64_t>(dict.members.size() / 16));
  for (const auto& [name, value] : dict.members) {
    const bool same = name.text() != nullptr && key.text() != nullptr
                          ? same_text(name.text(), key.text())
                          : equal(budget, name, key);
    if (same) return &value;
  }
  return nullptr;
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict.members) {
    if (name.text() != nullptr && name.text()->bytes == key) return &value;
  }
  return nullptr;
}

void append_str(Budget& budget, MarkedText& to, const Value& value) {
  if (value.is_undefined() || append_simple(to, value)) return;
  const Text* text = value.text();
  if (text == nullptr) return append_python_repr(budget, to, value);
  budget.spend_on_bytes(text->bytes.size());
  budget.expect_room(to, text->bytes.size());
  to.append(*text);
}

void append_json(Budget& budget, MarkedText& to, const Value& value, const JsonForm& form) {
  JsonWriter(budget, to, form).write(value);
}

}  // namespace runnel::jinja
