// The life of a serving process: load, warm up, serve, drain.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "config/server_config.h"
#include "models/bundle.h"
#include "models/model.h"
#include "server/event_log.h"

namespace runnel {

class Backend;

// A model on its backend, which outlives it.
struct LoadedModel {
  std::shared_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

// Puts a bundle on the device that the config asks for. Given by main: nothing here knows devices.
using ModelFactory = std::function<Result<LoadedModel>(
    const Bundle& bundle, const ServerConfig& config, const ModelLimits& limits)>;

// Serves until SIGTERM or SIGINT, then drains. Gives the exit code: 0 when all went well, 1 when
// the server could not start, 2 when the settings are wrong. The reason is logged.
int serve(const ServerConfig& config, const ModelFactory& make_model, const EventLog& log,
          const std::string& version);

}  // namespace runnel
