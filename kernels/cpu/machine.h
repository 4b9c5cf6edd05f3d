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
// `root` is a prefix of the paths of the system's files.
UsableCores find_usable_cores(const std::string& root = "");
int usable_cores();

// The vendor as the processor reports it: "GenuineIntel", "AuthenticAMD". Empty if it reports none.
std::string processor_vendor();

bool has_tiles();  // whether the processor has tiles of bf16
// Whether the processor has tiles, and the kernel lets this process use them. The kernel is asked
// once. It may refuse in a container, or if a thread's signal stack is too small for them.
bool may_use_tiles();

// The bytes that this process can still use without swapping: the memory that the system has
// available, within the limits of its control groups; at least 0.
FreeMemory find_free_memory(const std::string& root = "");
int64_t free_memory();

}  // namespace runnel::cpu
