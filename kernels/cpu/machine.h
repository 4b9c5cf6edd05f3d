// The processors and memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace runnel::cpu {

// A number with its source, for the log: a file of the system, "affinity" or "available".
struct UsableCores {
  int count = 1;
  std::string from;
};
struct FreeMemory {
  int64_t bytes = 0;
  std::string from;
};

// The cores of this process's affinity mask, within the quota of its control groups; at least 1.
// `root` is put before the paths of the system's files.
UsableCores find_usable_cores(const std::string& root = "");
int usable_cores();

// As the processor names it, "GenuineIntel", "AuthenticAMD"; empty where it has no such name.
std::string processor_vendor();

bool has_tiles();  // of bf16
// Whether the processor has them and the kernel lets this process use them; it is asked
// once, and may refuse, in a container or where a thread's signal stack is too small for them.
bool may_use_tiles();

// Bytes that this process can still use without swapping: what the system has available, within the
// limits of its control groups; at least 0.
FreeMemory find_free_memory(const std::string& root = "");
int64_t free_memory();

}  // namespace runnel::cpu
