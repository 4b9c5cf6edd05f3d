// Runs a model without a server, for the programs that measure a GPU. Every error ends the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/control.h"
#include "kernels/cuda/cuda_backend.h"
#include "models/bundle/bundle.h"
#include "models/make_model.h"

namespace runnel {

[[noreturn]] void give_up(const std::string& why);

// The command line of a program: "NAME BUNDLE [FLAG VALUE]...". The flags of `runnel serve` for a
// GPU (--kernels, --gpu-state, --prompts), --precision, --batches 1,64 and --seconds of measuring;
// --whole off, --cluster and --together as CudaOptions has them; --costs FILE, which
// read_layer_costs() reads; --top-k and --top-p, which filter sampled values. Only for gpu_steps:
// --sweep on measures every number of blocks and tiles of a cluster.
struct Settings {
  std::string bundle;  // a directory, or "lm" for a language model with random weights
  CudaOptions options;
  Precision precision = Precision::kBf16;
  std::vector<int> batches = {1, 64, 1024, 2048};
  double seconds = 1;
  bool sweep = false;
  Sampling sampling = {};
};
Settings settings_of(int argc, char** argv);

// The bundle of the settings. "lm": `layers` layers of width 2048 with 16 heads, and 50,000 values.
// Its weights are random, but keep activations of order one.
Bundle bundle_of(const Settings& settings, int layers = 24);

std::unique_ptr<Backend> gpu_of(const Settings& settings);
std::unique_ptr<Model> model_of(const Bundle& bundle, Backend& backend, const ModelLimits& limits,
                                Precision precision);

// Waits for a launch. `emitted` then has exactly its values.
void finish(Model& model, Ticket ticket, std::vector<Emitted>& emitted);

// Starts a fresh sequence from its first value. It will sample `count` more.
void begin(Model& model, SlotId slot, uint64_t seed, int64_t count, const Sampling& sampling = {});

// Log-probabilities of values[1], values[2], ... each given the values before it.
std::vector<float> score(Model& model, const std::vector<int32_t>& values);

}  // namespace runnel
