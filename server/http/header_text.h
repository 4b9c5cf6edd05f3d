// Texts of a request's head: values of its headers, and of its target.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// `text` with a-z for A-Z.
std::string lower(std::string_view text);

// Without the spaces and tabs around it.
std::string_view trimmed(std::string_view text);

// The text of a part of a path: bytes for "%41"; a percent sign that no byte follows stays.
std::string unescaped(std::string_view part);

// What a target says of `name` after its "?", unescaped; "" where it says nothing.
std::string query_of(std::string_view target, std::string_view name);

}  // namespace runnel
