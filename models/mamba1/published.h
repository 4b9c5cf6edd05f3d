// Mamba-1 and Falcon-Mamba as Hugging Face publishes them, and Mamba-1 as state-spaces does.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; what is wrong goes to the
// config's faults.
void read_published_mamba1(const PublishedModel& model, Spec& spec);

// Whether it is a config of state-spaces with layers of Mamba-1.
bool is_untyped_mamba1(const PublishedConfig& config);

}  // namespace runnel
