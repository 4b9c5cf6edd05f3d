// Mamba-2 as llama.cpp's converter writes it into a GGUF file.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the keys that begin with "mamba2." into spec.model, spec.vocabulary and spec.head; the
// first fault is added to the config's faults.
void read_gguf_mamba2(const PublishedModel& model, Spec& spec);

}  // namespace runnel
