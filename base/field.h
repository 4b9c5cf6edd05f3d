// Places for field names in error messages. The engine names a request's field by its canonical
// name, the one of the wire contract (proto/runnel/v1); each door puts its own word there.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace runnel {

// A place for the name of `field` in a message.
std::string place_of(std::string_view field);

// `hint`, which doors leave out that lack a field with a place in it.
std::string hint(std::string_view hint);

// The word of a door for a field, by its canonical name; empty: this door has no such field.
using FieldWord = std::function<std::string_view(std::string_view field)>;

// `message` with the words of a door in its places. Without places it stays as it is.
std::string rendered(std::string_view message, const FieldWord& word_of);

// The same with the canonical names.
std::string rendered(std::string_view message);

// The first field that has a place in `message`; empty: none has.
std::string_view first_field(std::string_view message);

}  // namespace runnel
