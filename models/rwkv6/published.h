// RWKV-5.2 and RWKV-6 as BlinkDL publishes them.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; what is wrong goes to the
// config's faults. The sizes are those of the tensors.
void read_published_rwkv6(const PublishedModel& model, Spec& spec);

}  // namespace runnel
