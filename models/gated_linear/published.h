// The gated linear family as flash-linear-attention publishes it.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; faults are added to the
// config's.
void read_published_gated_linear(const PublishedModel& model, Spec& spec);

}  // namespace runnel
