// The state of a session as a store has it: a state file (docs/state.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "models/state/file.h"
#include "server/host/served_models.h"
#include "server/host/server_context.h"
#include "storage/store.h"

namespace runnel {

// Bytes of memory that it takes to save a state of the engine's.
int64_t bytes_to_save(const Engine& engine);

// Hands `image` to `save` as a file, sealed if the server has a key.
Result<int64_t> save_file(const ServerContext& context, const ServedModel& model,
                          const std::string& owner, StateImage image,
                          const std::function<Result<int64_t>(const Snapshot&)>& save);

// Reads the state that the record of a session of `owner` names. NOT_FOUND if another state has
// replaced it; DATA_LOSS if it is damaged; FAILED_PRECONDITION if this server cannot use it.
Result<std::shared_ptr<StateImage>> load_file(const ServerContext& context,
                                              const ServedModel& model, const std::string& owner,
                                              Store& store, const std::string& key,
                                              const Record& record);

}  // namespace runnel
