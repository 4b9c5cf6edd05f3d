// Stops the process with a message on programming errors, in every build. Must not be used to check
// untrusted input.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace runnel {

[[noreturn]] inline void check_failed(const char* what, const std::source_location& where) {
  std::fprintf(stderr, "%s:%u: %s: check failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name(), what);
  std::abort();
}

// Stops the process unless `holds`; `what` says what must hold.
inline void check(bool holds, const char* what,
                  const std::source_location& where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    check_failed(what, where);
}

}  // namespace runnel
