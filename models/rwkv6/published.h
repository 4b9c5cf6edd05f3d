// RWKV-5.2 and RWKV-6 in the form that BlinkDL publishes.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; the first fault is added
// to the config's faults. The sizes follow from the tensors' shapes.
void read_published_rwkv6(const PublishedModel& model, Spec& spec);

}  // namespace runnel
