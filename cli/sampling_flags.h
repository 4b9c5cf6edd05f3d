// How values are chosen, as flags of the commands that sample.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "runnel/v1/inference.pb.h"

namespace runnel {

// What is not set is left to the server.
struct SamplingFlags {
  std::optional<uint64_t> seed;
  std::optional<float> temperature, top_p, min_p;
  std::optional<int> top_k;
  bool greedy = false;
};

// `flags` outlives the parse.
void add_sampling(CLI::App& command, SamplingFlags& flags);

void fill_sampling(const SamplingFlags& flags, v1::Sampling& sampling);

}  // namespace runnel
