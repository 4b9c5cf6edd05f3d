// Runs a serving process: load, warm up, serve, reload, drain.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "config/server_config.h"
#include "server/host/event_log.h"
#include "server/host/load_model.h"
#include "server/process/model_loader.h"

namespace runnel {

// How the process reads the settings again while it serves.
struct Rereading {
  std::function<Result<ServerConfig>()> read;
  // Whether SIGHUP makes the process read the settings again. False: SIGHUP stops the process.
  bool on_hang_up = false;
};

// Serves until SIGTERM or SIGINT, then drains. When the settings are read again, only the models
// change. Returns the exit code, and logs the reason:
// - 0: no error.
// - 1: the server could not start.
// - 2: the settings are wrong.
// - 3: a device has failed.
int serve(const ServerConfig& config, const Rereading& rereading, const ModelFactory& make_model,
          const EventLog& log, const std::string& version, const ShowLoading& show_loading = {});

}  // namespace runnel
