// The processors and memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace runnel::cpu {

// The cores of this process's affinity mask, within its control group's quota of processor time; at
// least 1.
int usable_cores();

// As the processor names it, "GenuineIntel", "AuthenticAMD"; empty where it has no such name.
std::string processor_vendor();

bool has_tiles();  // of bf16
// Whether the processor has them and the kernel lets this process use them; it is asked
// once, and may refuse, in a container or where a thread's signal stack is too small for them.
bool may_use_tiles();

// Bytes that this process can still use without swapping: what the system has available, within its
// control group's limit; at least 0. `root` is put before the paths of the system's files.
int64_t free_memory(const std::string& root = "");

}  // namespace runnel::cpu
