// Placeholders for field names in error messages. The engine uses the canonical name of a field,
// which is its name in the gRPC contract (proto/runnel/v1). Each door replaces the placeholder with
// its own word for the field.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace runnel {

// A placeholder for the name of `field` in a message.
std::string place_of(std::string_view field);

// A hint in a message. A door omits the hint if it has no word for a field that the hint names.
std::string hint(std::string_view hint);

// Returns a door's word for a field, which is given by its canonical name (base/fields.h). Returns
// an empty word if the door has no such field.
using FieldWord = std::function<std::string_view(std::string_view field)>;

// A field, and a door's word for it. Each door has a table of them.
struct NamedField {
  std::string_view field, word;
};

// The word for a field in a table. Empty if the table does not have the field.
std::string_view word_in(std::span<const NamedField> table, std::string_view field);

// `message` with its placeholders replaced by a door's words.
std::string rendered(std::string_view message, const FieldWord& word_of);

// `message` with its placeholders replaced by canonical names.
std::string rendered(std::string_view message);

// The field of the first placeholder in `message`, not counting hints. Empty if `message` has no
// placeholder outside of hints.
std::string_view first_field(std::string_view message);

}  // namespace runnel
