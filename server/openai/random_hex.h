// Makes ids that nobody can guess.
#pragma once

#include <cstddef>
#include <string>

namespace runnel {

// `digits` random hexadecimal digits, in lower case.
std::string random_hex(size_t digits);

}  // namespace runnel
