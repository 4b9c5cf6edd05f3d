// Loads the models of a serving process, one at a time, and logs how that goes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/file_stamp.h"
#include "config/server_config.h"
#include "server/host/event_log.h"
#include "server/host/load_model.h"
#include "server/host/served_models.h"

namespace runnel {

// Told how far the loading of a model is, and when it has ended, well or not: 0 of 0.
using ShowLoading = std::function<void(int64_t done, int64_t all)>;

class ModelLoader {
 public:
  // With the settings of `config`, whatever models it names. Everything given outlives the loader;
  // `stopped` is asked again and again while a model loads, and ends that where it says so.
  ModelLoader(const ServerConfig& config, const ModelFactory& make_model, const Clock& clock,
              const EventLog& log, std::function<bool()> stopped)
      : config_(config),
        make_model_(make_model),
        clock_(clock),
        log_(log),
        stopped_(std::move(stopped)) {}

  // Blocks, in one thread at a time. Errors of load_model(), and CANCELLED once it is stopped.
  Result<ServedModel> load(const ModelConfig& from, const ShowLoading& show = {}) const;

 private:
  const ServerConfig& config_;
  const ModelFactory& make_model_;
  const Clock& clock_;
  const EventLog& log_;
  const std::function<bool()> stopped_;
};

}  // namespace runnel
