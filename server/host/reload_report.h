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
    std::string model;   // its name, or its path if its name is not known
    std::string reason;  // why, and what to do
    friend bool operator==(const Refused&, const Refused&) = default;
  };
  std::vector<std::string> added;
  std::vector<std::string> replaced;  // loaded again, because their files have changed
  std::vector<std::string> retired;
  std::vector<std::string> kept;  // not changed
  std::vector<Refused> refused;   // changes that failed; the models from before are still served
  std::vector<std::string> needs_restart;  // settings whose new values need a restart
};

// Called with the outcome of a reload, on any thread. FAILED_PRECONDITION: the configuration cannot
// be used, and nothing has changed. UNAVAILABLE: the server has begun to shut down.
using ReloadDone = std::function<void(const Result<ReloadReport>& report)>;

// Asks for a reload, and does not wait for it. ABORTED if another reload is in progress.
using AskReload = std::function<Status(ReloadDone done)>;

}  // namespace runnel
