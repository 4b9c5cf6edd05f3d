// gRPC's own messages in the log of the server. The library has one place for them in a process, so
// one of these may live at a time.
#pragma once

#include "base/clock.h"
#include "server/host/event_log.h"

namespace runnel {

class LibraryLog {
 public:
  // From here on, errors are logged as warnings, at most one a second: hostile clients can cause
  // them. Does nothing where GRPC_VERBOSITY is set, with which the library writes to stderr.
  // `log` and `clock` outlive this.
  LibraryLog(const EventLog& log, const Clock& clock);
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;
  // From here on nothing is logged.
  ~LibraryLog();
};

}  // namespace runnel
