// The name of the processor, for reports of measurements.
#pragma once

#include <string>

namespace runnel {

// The processor's name as this machine reports it; "unknown" if it reports none.
std::string cpu_name();

}  // namespace runnel
