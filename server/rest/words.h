// The names of the fields of requests (base/fields.h) on runnel's own paths.
#pragma once

#include <string_view>

#include "server/http/fault.h"

namespace runnel {

// Empty if no path has such a field.
std::string_view rest_word(std::string_view field);

// A refusal with these names.
Fault rest_fault(const Status& status);

}  // namespace runnel
