// The sizes that only RWKV-5.2 and RWKV-6 read (Peng et al. 2024), and the tensors that follow from
// them. Every field is documented in docs/bundle.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "models/expected_tensor.h"
#include "models/state/layout.h"

namespace runnel {

struct Spec;

enum class Rwkv6Version : uint8_t { kSix, kFive };  // kFive: 5.2

struct Rwkv6Spec {
  Rwkv6Version version = Rwkv6Version::kSix;
  int layers = 0;
  int width = 0;  // of the residual stream, of keys and of values
  int heads = 0;  // divides the width
  int ffn = 0;
  int mix_rank = 0;    // of each of the five mixes of version 6
  int decay_rank = 0;  // of version 6
  float norm_eps = 1e-5F;
  float head_norm_eps = 64e-5F;  // of ln_x
  int table_rows = 0;            // of embedding and head: Spec::vocabulary, then padding

  bool is_six() const { return version == Rwkv6Version::kSix; }
  int head_size() const { return width / heads; }
};

// The recurrence of a layer, without its tensors.
Recurrence recurrence_of(const Rwkv6Spec& sizes);

// The states of each layer.
std::vector<LayerStates> layers_of(const Rwkv6Spec& sizes);

// Every tensor of the model.
std::vector<ExpectedTensor> tensors_of(const Rwkv6Spec& sizes, const Spec& spec);

// A description of the network for people, as rows of (name, text).
std::vector<std::pair<std::string, std::string>> description_of(const Rwkv6Spec& sizes,
                                                                const Spec& spec);

}  // namespace runnel
