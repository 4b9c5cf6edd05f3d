// The flags for choosing values, for the commands that sample.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "runnel/v1/inference.pb.h"

namespace runnel {

// The server chooses everything that is not set.
struct SamplingFlags {
  std::optional<uint64_t> seed;
  std::optional<float> temperature, top_p, min_p;
  std::optional<int> top_k;
  bool greedy = false;
  std::optional<float> repetition_penalty, frequency_penalty, presence_penalty;
  std::vector<std::string> logit_bias;  // "VALUE=BIAS"
};

// Adds the flags. `flags` must outlive the parse.
void add_sampling(const Command& command, SamplingFlags& flags);

// Adds the flags of the penalties.
void add_penalties(const Command& command, SamplingFlags& flags);

void fill_sampling(const SamplingFlags& flags, v1::Sampling& sampling);

}  // namespace runnel
