// Checks, before anything is served, whether the system provides the threads and the address space
// that a server needs. If gRPC could not start a thread later, some calls would never end.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

#include "base/status.h"
#include "config/server_config.h"

namespace runnel {

// The maximum number of threads that a serving process of this configuration starts, including
// gRPC's threads.
int64_t threads_for(const ServerConfig& config);

// The text for a thread that could not start: "the system gives no thread: ...; the user may have
// 100 (ulimit -u, LimitNPROC)".
std::string no_thread_text(const std::system_error& error);

// Starts `needed` threads at the same time, each of which allocates memory, checks whether the
// process may have `bytes` more address space while they run, and ends them. RESOURCE_EXHAUSTED
// names the limit that is too low.
Status check_threads(int64_t needed, int64_t bytes);

// Checks whether the process may have `bytes` more address space. RESOURCE_EXHAUSTED names the
// limit.
Status check_addresses(int64_t bytes);

}  // namespace runnel
