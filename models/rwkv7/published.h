// RWKV-7 in its published forms: with BlinkDL's names of tensors, or those of
// flash-linear-attention.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the family's part into spec.model, spec.vocabulary and spec.head; the first fault is added
// to the config's faults. For a file with official names, the sizes follow from the tensors'
// shapes.
void read_published_rwkv7(const PublishedModel& model, Spec& spec);

}  // namespace runnel
