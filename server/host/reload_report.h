// The outcome of a reload, and how a call asks for one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace runnel {

// Models by name.
struct ReloadReport {
  struct Refused {
    std::string model;   // its name, or its path where its name is not known
    std::string reason;  // and what to do
    friend bool operator==(const Refused&, const Refused&) = default;
  };
  std::vector<std::string> added;
  std::vector<std::string> replaced;  // by what their files are now
  std::vector<std::string> retired;
  std::vector<std::string> kept;  // as they were
  std::vector<Refused> refused;   // what could not be done; what was served before is served still
  std::vector<std::string> needs_restart;  // keys of settings that differ from those in effect
};

// Told, on any thread, what a reload has come to: FAILED_PRECONDITION when the configuration cannot
// be used, and nothing has changed; UNAVAILABLE when the server has begun to shut down.
using ReloadDone = std::function<void(const Result<ReloadReport>& report)>;

// Asks for a reload, and does not wait for it. ABORTED while another one is under way.
using AskReload = std::function<Status(ReloadDone done)>;

}  // namespace runnel
