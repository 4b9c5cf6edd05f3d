// States that an operator ships beside a model: files NAME.state of one directory, which sequences
// may start from by name. Names come from the directory's listing; no path is made of what a client
// sends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace runnel {

// A stored state as clients see it.
struct StoredState {
  std::string name;
  int64_t position = 0;
  std::string numerics;  // the numerics id under which it came to be
};

// Puts every file of `directory` that is a state of the engine's model, whose model_digest() is
// `digest`, into a slot of it; those of other models are left for them. By name. Waits for the
// engine, at most a minute for each. Files need no seal, and any numerics id will do. Not OK: the
// directory cannot be listed, a file cannot be used (the message names it), or there are too few
// slots.
Result<std::vector<StoredState>> load_states(const std::string& directory,
                                             const std::string& digest, Engine& engine);

}  // namespace runnel
