// Saves states of an engine as state files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "server/host/served_models.h"
#include "server/host/server_context.h"
#include "storage/store.h"

namespace runnel {

// The bytes of memory for saving a state of the engine.
int64_t bytes_to_save(const Engine& engine);

// Passes `image` to `save` as a state file, which is sealed if the server has a key.
using SaveSnapshot = std::function<Result<int64_t>(const Snapshot&)>;
Result<int64_t> save_file(const ServerContext& context, const ServedModel& model,
                          const std::string& owner, StateImage image, const SaveSnapshot& save);

}  // namespace runnel
