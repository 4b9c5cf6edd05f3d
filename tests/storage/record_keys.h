// Keys of the records that the tests of the stores write.
#pragma once

#include <string>

#include "storage/record_key.h"

namespace runnel {

inline const std::string kKey = record_key("model", "", "a");
inline const std::string kOther = record_key("model", "", "b");

}  // namespace runnel
