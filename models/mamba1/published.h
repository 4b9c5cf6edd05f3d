// Mamba-1 and Falcon-Mamba as Hugging Face publishes them.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; what is wrong goes to the
// config's faults.
void read_published_mamba1(const PublishedModel& model, Spec& spec);

}  // namespace runnel
