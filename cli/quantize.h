// The command `quantize`: writes a copy of a model with its large matrices quantized in blocks.
#pragma once

#include <string>

#include "cli/console.h"
#include "cli/flags.h"

namespace runnel {

struct QuantizeOptions {
  std::string bundle;
  std::string type;  // "q4_0" or "q8_0"
  std::string out;   // a directory that does not exist
};

// Writes the quantized bundle and prints its size. Returns kExitUsage if the bundle or the output
// directory cannot be used.
int run_quantize(const QuantizeOptions& options, Console& console);

void add_quantize(const Command& root);

}  // namespace runnel
