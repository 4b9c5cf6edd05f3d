// Loads a bundle from its directory, and makes an engine that is ready for its first call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "config/server_config.h"
#include "models/bundle/bundle.h"
#include "models/model.h"
#include "server/host/served_models.h"

namespace runnel {

class Backend;
enum class Precision : uint8_t;  // kernels/backend.h

// A model on its backend, which must outlive the model.
struct LoadedModel {
  std::shared_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  Precision precision{};          // of the model's products
  std::string instructions = {};  // of the CPU, and why they were chosen; empty on a GPU
};

// Puts a bundle on the device that the config asks for. main() provides this function, because the
// code here knows no devices.
using ModelFactory = std::function<Result<LoadedModel>(
    const Bundle& bundle, const ServerConfig& config, const ModelLimits& limits)>;

// The value of a limit in milliseconds, as a duration.
Duration milliseconds_of(const ServerConfig& config, const Limit& limit);

// The limits that the config sets for a model.
ModelLimits model_limits(const ServerConfig& config);

// Loads one bundle or published model, makes its engine, and has it sample, so that the first
// client does not wait for work that is done once. Blocks. Errors of load_bundle(), of the factory
// and of the first call. `clock` must outlive the engine.
Result<ServedModel> load_model(const ModelConfig& from, const ServerConfig& config,
                               const ModelFactory& make_model, const Clock& clock,
                               LoadProgress progress = {});

}  // namespace runnel
