// RWKV-7 as it is published: under BlinkDL's names, or those of flash-linear-attention.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; what is wrong goes to the
// config's faults. Sizes of a file with official names are those of its tensors.
void read_published_rwkv7(const PublishedModel& model, Spec& spec);

}  // namespace runnel
