// Loads a model from a GGUF file.
#pragma once

#include <string>

#include "models/bundle/bundle.h"

namespace runnel {

// Reads and checks a GGUF file, with the errors of load_bundle().
Result<Bundle> load_gguf(const std::string& path, LoadProgress progress = {});

}  // namespace runnel
