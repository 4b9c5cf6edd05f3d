// The gated linear family as flash-linear-attention publishes it.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; the first fault is added
// to the config's faults.
void read_published_gated_linear(const PublishedModel& model, Spec& spec);

}  // namespace runnel
