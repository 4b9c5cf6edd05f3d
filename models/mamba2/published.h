// Mamba-2 in its published forms: of Hugging Face's transformers, flash-linear-attention or
// state-spaces.
#pragma once

#include <string>

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; the first fault is added
// to the config's faults.
void read_published_mamba2(const PublishedModel& model, Spec& spec);

// Whether `config` is a config of state-spaces whose layers are not Mamba-1. If no family has these
// layers, this family reports the fault.
bool is_untyped_mamba2(const PublishedConfig& config);

// The value of ssm_cfg.layer in a config of state-spaces. If the key is absent, "Mamba1", as in
// state-spaces' code. "" for any other config.
std::string state_spaces_layer(const PublishedConfig& config);

// Adds a fault if a config of state-spaces asks for something that neither Mamba-1 nor Mamba-2
// supports here.
void refuse_state_spaces_options(const PublishedConfig& config);

// Reads the limits of dt, [least, most], if the key is present.
void read_time_step_limit(const PublishedConfig& config, const char* key, float& least,
                          float& most);

}  // namespace runnel
