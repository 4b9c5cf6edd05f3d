// Mamba-2 as it is published: by Hugging Face's transformers, flash-linear-attention or
// state-spaces.
#pragma once

#include <string>

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; what is wrong goes to the
// config's faults.
void read_published_mamba2(const PublishedModel& model, Spec& spec);

// Whether it is a config of state-spaces whose layers are not Mamba-1. This family refuses layers
// that no family has.
bool is_untyped_mamba2(const PublishedConfig& config);

// ssm_cfg.layer of a config of state-spaces, whose code takes "Mamba1" where it is absent; "" of
// another config.
std::string state_spaces_layer(const PublishedConfig& config);

// Faults where a config of state-spaces asks for what neither Mamba-1 nor Mamba-2 does here.
void refuse_state_spaces_options(const PublishedConfig& config);

// [least, most] of dt, where the key is there.
void read_time_step_limit(const PublishedConfig& config, const char* key, float& least,
                          float& most);

}  // namespace runnel
