// Hybrid models as their makers publish them, for Hugging Face's transformers.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary, spec.positions and spec.head; the first
// fault is added to the config's faults.
void read_published_hybrid(const PublishedModel& model, Spec& spec);

}  // namespace runnel
