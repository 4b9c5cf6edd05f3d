// The words of runnel's own paths for the fields of requests (base/fields.h).
#pragma once

#include <string_view>

#include "server/http/fault.h"

namespace runnel {

// Empty where no path has such a field.
std::string_view rest_word(std::string_view field);

// A refusal in these words.
Fault rest_fault(const Status& status);

}  // namespace runnel
