// Places for field names in error messages. The engine names a request's field by its canonical
// name, the one of the wire contract (proto/runnel/v1); each door puts its own word there.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// A place for the name of `field` in a message.
std::string place_of(std::string_view field);

// `hint`, which doors leave out that lack a field with a place in it.
std::string hint(std::string_view hint);

// The word of a door for a field, by its canonical name (base/fields.h); empty: this door has no
// such field.
using FieldWord = std::function<std::string_view(std::string_view field)>;

// A field and the word that a door has for it. Each door has a table of them.
struct NamedField {
  std::string_view field, word;
};

// The word of a table for a field; empty: the table has none.
std::string_view word_in(std::span<const NamedField> table, std::string_view field);

// `message` with the words of a door in its places. Without places it stays as it is.
std::string rendered(std::string_view message, const FieldWord& word_of);

// The same with the canonical names.
std::string rendered(std::string_view message);

// The first field that has a place in `message` outside of hints; empty: none has.
std::string_view first_field(std::string_view message);

}  // namespace runnel
