// Mamba-2 as it is published: by Hugging Face's transformers, flash-linear-attention or
// state-spaces.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; what is wrong goes to the
// config's faults.
void read_published_mamba2(const PublishedModel& model, Spec& spec);

// [least, most] of dt, where the key is there.
void read_time_step_limit(const PublishedConfig& config, const char* key, float& least,
                          float& most);

}  // namespace runnel
