#include "server/process/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "server/process/metrics_port.h"

namespace runnel {
namespace {

// One of the transport's and one of the listener's (see listener.h).
constexpr int64_t kFilesPerConnection = 2;
// Listening sockets, event loops, a bundle that is being loaded, a device, logs.
constexpr int64_t kFilesOfTheProcess = 128;

int64_t files_per_connection(const ServerConfig& config) {
  return kFilesPerConnection * (config.http_address.empty() ? 1 : 2);
}

}  // namespace

int64_t open_files_for(const ServerConfig& config) {
  const int metrics = config.metrics_address.empty() ? 0 : metrics_port_connections();
  return kFilesOfTheProcess + kFilesPerConnection * metrics +
         files_per_connection(config) * config.limit(limits::kConnections);
}

Status raise_open_files(const ServerConfig& config) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return {};
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NOFILE, &files);
  const int64_t needed = open_files_for(config);
  if (files.rlim_cur == RLIM_INFINITY || static_cast<int64_t>(files.rlim_cur) >= needed) return {};
  const auto given = static_cast<int64_t>(files.rlim_cur);
  const int64_t connections = config.limit(limits::kConnections);
  const int64_t fits = connections - (needed - given + files_per_connection(config) - 1) /
                                         files_per_connection(config);
  std::string message = "the process may open " + std::to_string(given) +
                        " files and needs up to " + std::to_string(needed) +
                        " for limits.connections = " + std::to_string(connections) +
                        ": raise the limit (ulimit -Hn, LimitNOFILE)";
  if (fits > 0) message += ", or set limits.connections to at most " + std::to_string(fits);
  return {Code::kFailedPrecondition, message};
}

}  // namespace runnel
