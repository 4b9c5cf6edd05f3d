// Bundles for tests: random weights for any spec, written to a temporary directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/bundle/bundle.h"
#include "models/bundle/config.h"
#include "models/bundle/safetensors.h"
#include "models/spec.h"

namespace runnel {

using TensorMap = std::map<std::string, std::vector<float>, std::less<>>;

// A new directory under the system's temporary one. The destructor removes it with its contents.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();

  // Without a trailing slash.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The family part of a linear transformer's spec.
inline LinearTransformerSpec& sizes_of(Spec& spec) {
  return std::get<LinearTransformerSpec>(spec.model);
}
inline const LinearTransformerSpec& sizes_of(const Spec& spec) {
  return std::get<LinearTransformerSpec>(spec.model);
}

// A 5 x 4 grey image: 2 layers of width 24, 3 heads of 8, table positions next to the value
// embedding, relu, a mixture of 3 logistics over 256 values, begin value 0.
Spec small_image_spec();

// 11 symbols "0" to "9" and "\n", with unlimited positions: 2 layers of width 20, 2 heads with dk =
// 6 and dv = 5, sinusoidal positions added to the value embedding, gelu, categorical, and a begin
// value that is drawn from a histogram.
Spec small_symbol_spec();

// Text as bytes, with unlimited positions and no first value: the sizes of small_symbol_spec().
Spec small_text_spec();
// Gated attention over smoothed Fourier features of unit vectors, with every tensor that attention
// can have. The number of features is odd, and larger than dk.
Spec small_gated_spec();

// Softmax attention with heads of 6 and 5, its own scale and 300 positions; everything else as in
// small_symbol_spec().
Spec small_softmax_spec();

// RWKV-7 over 11 values, with official names: 3 layers of width 24, 2 heads with dk = 12 and dv =
// 5, four different ranks, and 2 rows of padding.
Spec small_rwkv7_spec();

// RWKV-7 over 11 values, for in_blocks(): 3 layers of width 64, 4 heads, a feed-forward of 96.
Spec small_blocks_spec();

// Mamba-2 over 11 values: 2 layers of width 20, 6 heads with dk = 7 and dv = 5 in 2 groups, all
// biases, limits for dt, 3 rows of padding.
Spec small_mamba2_spec();

// The gated linear family over 11 values: 2 layers of width 20, 4 heads. Together the mixers cover
// every option.
inline constexpr GatedMixer kSmallMixers[] = {GatedMixer::kGla,           GatedMixer::kRetNet,
                                              GatedMixer::kDeltaNet,      GatedMixer::kKda,
                                              GatedMixer::kGatedDeltaNet, GatedMixer::kHgrn2};
Spec small_gated_linear_spec(GatedMixer mixer);

// RWKV-6 or 5.2 over 11 values: 2 layers of width 24, 2 heads, and 2 rows of padding.
Spec small_rwkv6_spec(Rwkv6Version version);

// Falcon-Mamba over 11 values: 2 layers of width 20, 78 channels, and 3 rows of padding.
Spec small_mamba1_spec();
// Hybrids of each style over 11 values: 2 to 4 layers of width 20, 4 heads of attention and 300
// positions.
Spec small_hybrid_spec(HybridStyle style);
// The same with 5 experts, of which an input uses 2. The routers of LFM2 and Nemotron-H have a
// bias. LFM2's first layer has no experts. Qwen3.5 and Nemotron-H have another expert for all
// inputs.
Spec small_experts_spec(HybridStyle style);

// A small spec of every family, and of every mixer.
std::vector<Spec> small_family_specs();

// The shape of every tensor of the spec. Stops the test if two have the same name.
std::map<std::string, std::vector<int64_t>> shapes_of(const Spec& spec);

// Every tensor of the spec. On machines of one kind, a seed always gives the same tensors.
// Activations stay O(1): weights ~ N(0, 1 / in), biases ~ N(0, 0.01), norm weights near 1,
// embeddings ~ N(0, 1), a position table of sinusoids.
TensorMap random_tensors(const Spec& spec, uint64_t seed);

// The bundle that load_bundle() would return for these, without a file. Its digest has the seed.
Bundle random_bundle(const Spec& spec, uint64_t seed);

// The bundle with its large matrices in blocks, alternately Q8_0 and Q4_0. Only matrices whose rows
// are multiples of 32 are changed.
Bundle in_blocks(const Bundle& bundle);

// Rounds to the nearest fp16 or bf16 (ties to even), or not at all, and widens the result: the
// value that a file of that type has.
float stored(float value, StoredType type);

// One tensor of a file to write. `data` has the bytes of the file.
struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

// The bytes of a value stored as `type`, little-endian.
std::string raw_values(const std::vector<float>& values, StoredType type);

// A whole safetensors file: 8 bytes of length, the header, the data in the order of names.
std::string safetensors_file(const std::map<std::string, RawTensor>& tensors);

// A file with any header, well-formed or not.
std::string safetensors_file(std::string_view header, std::string_view data);

// Writes bytes to a file and replaces it. Stops the test if it cannot.
void write_file(const std::string& path, std::string_view bytes);

// The tensors of a bundle in the form that its file has.
std::map<std::string, RawTensor> raw_tensors(const Spec& spec, const TensorMap& tensors,
                                             StoredType type);

// Writes config.json and model.safetensors to `directory`, and creates it if necessary.
// parse_spec() must accept the spec, and `tensors` must have every tensor of the spec.
void write_bundle(const std::string& directory, const Spec& spec, const TensorMap& tensors,
                  StoredType type = StoredType::kF32);

}  // namespace runnel
