// The life of a serving process: load, warm up, serve, drain.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "config/server_config.h"
#include "server/event_log.h"
#include "server/load_model.h"

namespace runnel {

// Told how far the loading of a model is, and when it has ended, well or not: 0 of 0.
using ShowLoading = std::function<void(int64_t done, int64_t all)>;

// Serves until SIGTERM or SIGINT, then drains. Gives the exit code: 0 when all went well, 1 when
// the server could not start, 2 when the settings are wrong, 3 when a device has failed while it
// served. The reason is logged.
int serve(const ServerConfig& config, const ModelFactory& make_model, const EventLog& log,
          const std::string& version, const ShowLoading& show_loading = {});

}  // namespace runnel
