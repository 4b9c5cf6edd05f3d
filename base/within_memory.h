// Runs a piece of work and converts exceptions to a status, so that only the call fails.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/status.h"

namespace runnel {

// Returns the result of `work`, RESOURCE_EXHAUSTED if it runs out of memory, or INTERNAL for any
// other exception, which only a bug in this program can throw. If an exception reached gRPC, the
// call would never end. If it left a thread, the process would end.
template <typename Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    Status status(Code::kResourceExhausted,
                  "the server has no memory for this call; try again later");
    return status.with_reason("memory");
  } catch (const std::exception& error) {
    return Status(Code::kInternal,
                  "the server failed at this call, please report it: " + std::string(error.what()));
  }
}

}  // namespace runnel
