// Loads the models of a serving process, one at a time, and logs the progress.
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

// Called with the progress of loading a model. Called with 0 and 0 when loading has ended or
// failed.
using ShowLoading = std::function<void(int64_t done, int64_t all)>;

class ModelLoader {
 public:
  // Uses the settings of `config`, but not its list of models. All arguments must outlive the
  // loader. `stopped` is called repeatedly while a model loads. If it returns true, loading ends.
  ModelLoader(const ServerConfig& config, const ModelFactory& make_model, const Clock& clock,
              const EventLog& log, std::function<bool()> stopped)
      : config_(config),
        make_model_(make_model),
        clock_(clock),
        log_(log),
        stopped_(std::move(stopped)) {}

  // Blocks. Only one thread at a time may call this. Errors of load_model(), RESOURCE_EXHAUSTED if
  // the system has no memory or thread for the model, and CANCELLED once it is stopped.
  Result<ServedModel> load(const ModelConfig& from, const ShowLoading& show = {}) const;

 private:
  const ServerConfig& config_;
  const ModelFactory& make_model_;
  const Clock& clock_;
  const EventLog& log_;
  const std::function<bool()> stopped_;
};

}  // namespace runnel
