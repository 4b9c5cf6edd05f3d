// Hybrid models as llama.cpp's converter writes them into GGUF files.
#pragma once

#include "models/bundle/published.h"

namespace runnel {

// Reads the keys that begin with the file's architecture ("qwen35", "lfm2", "granitehybrid",
// "falcon-h1" or "nemotron_h") into spec.model, spec.vocabulary, spec.positions and spec.head; the
// first fault is added to the config's faults.
void read_gguf_hybrid(const PublishedModel& model, Spec& spec);

}  // namespace runnel
