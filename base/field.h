// Placeholders for field names in error messages. The engine names a request's field by its
// canonical name, which is that of the wire contract (proto/runnel/v1). Each door puts its own word
// in the placeholder.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// A placeholder for the name of `field` in a message.
std::string place_of(std::string_view field);

// A hint in a message. A door leaves it out if the door has no word for a field in it.
std::string hint(std::string_view hint);

// Gives a door's word for a field, which has its canonical name (base/fields.h). Empty: the door
// has no such field.
using FieldWord = std::function<std::string_view(std::string_view field)>;

// A field, and a door's word for it. Each door has a table of them.
struct NamedField {
  std::string_view field, word;
};

// The word for a field in a table. Empty: the table does not have the field.
std::string_view word_in(std::span<const NamedField> table, std::string_view field);

// `message` with a door's words in its placeholders. A message without placeholders does not
// change.
std::string rendered(std::string_view message, const FieldWord& word_of);

// `message` with the canonical names in its placeholders.
std::string rendered(std::string_view message);

// The first field with a placeholder in `message`, outside of hints. Empty: there is none.
std::string_view first_field(std::string_view message);

}  // namespace runnel
