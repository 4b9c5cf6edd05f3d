// The limit of open files (RLIMIT_NOFILE, 'ulimit -n') against what is configured.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/server_config.h"

namespace runnel {

// Files that a process with this configuration may have open at once: the connections of every
// port, and what the process itself opens.
int64_t open_files_for(const ServerConfig& config);

// Raises the process's soft limit to its hard limit. FAILED_PRECONDITION where that is less than
// open_files_for(config): the message says which limits.connections would fit.
Status raise_open_files(const ServerConfig& config);

}  // namespace runnel
