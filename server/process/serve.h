// The life of a serving process: load, warm up, serve, reload, drain.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "config/server_config.h"
#include "server/host/event_log.h"
#include "server/host/load_model.h"
#include "server/process/model_loader.h"

namespace runnel {

// How the settings are read again while the process serves.
struct Rereading {
  std::function<Result<ServerConfig>()> read;
  bool on_hang_up = false;  // SIGHUP asks for it; otherwise it stops the process
};

// Serves until SIGTERM or SIGINT, then drains. Meanwhile the models, and nothing else, follow the
// settings when they are read again. Gives the exit code: 0 when all went well, 1 when the server
// could not start, 2 when the settings are wrong, 3 when a device has failed while it served. The
// reason is logged.
int serve(const ServerConfig& config, const Rereading& rereading, const ModelFactory& make_model,
          const EventLog& log, const std::string& version, const ShowLoading& show_loading = {});

}  // namespace runnel
