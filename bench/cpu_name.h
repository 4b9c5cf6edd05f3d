// The processor, as figures name it.
#pragma once

#include <string>

namespace runnel {

// What the machine of this program calls its processor; "unknown" where it does not say.
std::string cpu_name();

}  // namespace runnel
