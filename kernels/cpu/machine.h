// What this process may use of the machine.
#pragma once

namespace runnel::cpu {

// The cores of this process's affinity mask, within its control group's quota of processor time; at
// least 1.
int usable_cores();

}  // namespace runnel::cpu
