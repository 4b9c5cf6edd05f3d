// Reads texts in a request's head: values of its headers, and parts of its target.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// `text` with A-Z replaced by a-z.
std::string lower(std::string_view text);

// `text` without the spaces and tabs around it.
std::string_view trimmed(std::string_view text);

// Decodes a part of a path: "%41" becomes its byte. A percent sign without two hexadecimal digits
// after it does not change.
std::string unescaped(std::string_view part);

// The value of `name` in the query of a target, decoded. "" if the query does not have it.
std::string query_of(std::string_view target, std::string_view name);

}  // namespace runnel
