// Stored states: files NAME.state of one directory, which an operator provides for a model.
// Sequences may start from them by name. The names come from the listing of the directory. No path
// is made from a name that a client sends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace runnel {

// The description of a stored state for clients.
struct StoredState {
  std::string name;
  int64_t position = 0;
  std::string numerics;  // the numerics id with which it was computed
};

// Loads every state file of `directory` that is of the engine's model into a slot of the engine.
// The model_digest() of the model is `digest`. Files of other models are ignored. Waits for the
// engine, at most a minute for each file. Files need no seal, and may have any numerics id. Returns
// the states by name. Not OK: the directory cannot be listed, a file cannot be used (the message
// names it), or there are too few slots.
Result<std::vector<StoredState>> load_states(const std::string& directory,
                                             const std::string& digest, Engine& engine);

}  // namespace runnel
