// Runs a piece of work and turns a failed allocation into a status, so that only the call fails.
#pragma once

#include <new>

#include "base/status.h"

namespace runnel {

// Returns what `work` returns, or RESOURCE_EXHAUSTED when memory runs out in it. An exception that
// reached the library would leave the call without an end; one that left a thread would end the
// process.
template <typename Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    Status status(Code::kResourceExhausted,
                  "the server has no memory for this call; try again later");
    return status.with_reason("memory");
  }
}

}  // namespace runnel
