// Writes gRPC's own messages to the log of the server. gRPC has one place for them in a process, so
// only one object of this class may exist at a time.
#pragma once

#include "base/clock.h"
#include "server/host/event_log.h"

namespace runnel {

class LibraryLog {
 public:
  // From here on, errors are logged as warnings, at most one a second, because hostile clients can
  // cause them. Does nothing if GRPC_VERBOSITY is set, which makes gRPC write to stderr. `log` and
  // `clock` must outlive the object.
  LibraryLog(const EventLog& log, const Clock& clock);
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;
  // From here on nothing is logged.
  ~LibraryLog();
};

}  // namespace runnel
