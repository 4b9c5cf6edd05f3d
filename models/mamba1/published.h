// Mamba-1 and Falcon-Mamba in the form of Hugging Face, and Mamba-1 in the form of state-spaces.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; the first fault is added
// to the config's faults.
void read_published_mamba1(const PublishedModel& model, Spec& spec);

// Whether `config` is a config of state-spaces with layers of Mamba-1.
bool is_untyped_mamba1(const PublishedConfig& config);

}  // namespace runnel
