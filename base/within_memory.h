// Where memory gives out in a call, the call ends and the process goes on.
#pragma once

#include <new>

#include "base/status.h"

namespace runnel {

// What `work` returns; RESOURCE_EXHAUSTED where memory gives out in it. An exception that reaches
// the library would leave the call without an end, and one that leaves a thread ends the process.
template <typename Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "the server has no memory for this call; try again later");
  }
}

}  // namespace runnel
