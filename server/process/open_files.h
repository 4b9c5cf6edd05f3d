// Checks the limit of open files (RLIMIT_NOFILE, 'ulimit -n') against the configuration.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/server_config.h"

namespace runnel {

// The maximum number of files that a process with this configuration has open: the connections of
// every port, and the files of the process itself.
int64_t open_files_for(const ServerConfig& config);

// Raises the process's soft limit to its hard limit. FAILED_PRECONDITION if that is less than
// open_files_for(config). The message then says which limits.connections would fit.
Status raise_open_files(const ServerConfig& config);

}  // namespace runnel
