// Parses a template's source into its tree.
#pragma once

#include <string_view>
#include <vector>

#include "models/template/node.h"

namespace runnel::jinja {

// Parses a source. Throws a Fault with its line: kSyntax if it is not a template, or uses something
// that is not supported; kLimit beyond kMaxSourceBytes, kMaxNodes or kMaxNesting.
std::vector<Node> parse(std::string_view source);

}  // namespace runnel::jinja
