// Whether the system gives the threads and addresses that a server needs: it is asked before
// anything is served. A thread that cannot be had later would leave calls of gRPC without an end.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "config/server_config.h"

namespace runnel {

// The most threads that a serving process of this configuration starts, those of gRPC included.
int64_t threads_for(const ServerConfig& config);

// "; the user may have 100 (ulimit -u, LimitNPROC)": the limits of threads that there are.
std::string limits_on_threads();

// Starts as many threads at once and ends them. RESOURCE_EXHAUSTED names the limit that is too low.
Status check_threads(int64_t needed);

// Whether the process may have `bytes` of addresses more. RESOURCE_EXHAUSTED names the limit.
Status check_addresses(int64_t bytes);

}  // namespace runnel
