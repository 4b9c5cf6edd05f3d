#include "models/families.h"

#include <array>

#include "models/gated_linear/config.h"
#include "models/gated_linear/network.h"
#include "models/gated_linear/published.h"
#include "models/hybrid/config.h"
#include "models/hybrid/gguf.h"
#include "models/hybrid/network.h"
#include "models/hybrid/published.h"
#include "models/linear_transformer/config.h"
#include "models/linear_transformer/network.h"
#include "models/mamba1/config.h"
#include "models/mamba1/network.h"
#include "models/mamba1/published.h"
#include "models/mamba2/config.h"
#include "models/mamba2/gguf.h"
#include "models/mamba2/network.h"
#include "models/mamba2/published.h"
#include "models/rwkv6/config.h"
#include "models/rwkv6/network.h"
#include "models/rwkv6/published.h"
#include "models/rwkv7/config.h"
#include "models/rwkv7/gguf.h"
#include "models/rwkv7/network.h"
#include "models/rwkv7/published.h"
#include "models/spec.h"

namespace runnel {
namespace {

// How a family's files are recognized, and the functions that read them.
struct Published {
  std::span<const std::string_view> model_types = {};
  bool (*is_untyped)(const PublishedConfig& config) = nullptr;
  std::span<const std::string_view> skipped = {};
  void (*read)(const PublishedModel& model, Spec& spec) = nullptr;
  std::span<const std::string_view> architectures = {};
  void (*read_gguf)(const PublishedModel& model, Spec& spec) = nullptr;
};

template <typename Sizes>
const Sizes& sizes_of(const Spec& spec) {
  return std::get<Sizes>(spec.model);
}

// The row of the family whose part of a spec is Sizes. The functions that take Sizes are overloads
// from the family's folder.
template <typename Sizes>
constexpr Family row(const char* name, decltype(Family::read_config) read_config,
                     const Published& published = {}) {
  return {
      .name = name,
      .read_config = read_config,
      .write_config = [](const Spec& spec) { return model_to_json(sizes_of<Sizes>(spec), spec); },
      .model_types = published.model_types,
      .is_untyped = published.is_untyped,
      .skipped = published.skipped,
      .read_published = published.read,
      .architectures = published.architectures,
      .read_gguf = published.read_gguf,
      .layers = [](const Spec& spec) { return layers_of(sizes_of<Sizes>(spec)); },
      .tensors = [](const Spec& spec) { return tensors_of(sizes_of<Sizes>(spec), spec); },
      .describe = [](const Spec& spec) { return description_of(sizes_of<Sizes>(spec), spec); },
      .make_network =
          [](const NetworkParts& parts) {
            return make_network(sizes_of<Sizes>(parts.bundle.spec), parts);
          },
  };
}

constexpr std::string_view kRwkv7Types[] = {"rwkv7"};
constexpr std::string_view kMamba2Types[] = {"mamba2"};
constexpr std::string_view kGatedLinearTypes[] = {"gla", "retnet", "delta_net", "gated_deltanet",
                                                  "kda", "hgrn2"};
constexpr std::string_view kRwkv6Types[] = {"rwkv6", "rwkv5"};
constexpr std::string_view kMamba1Types[] = {"mamba", "falcon_mamba"};
constexpr std::string_view kHybridTypes[] = {
    "qwen3_5_text", "qwen3_5",  "qwen3_5_moe_text", "qwen3_5_moe", "qwen3_next",
    "lfm2",         "lfm2_moe", "granitemoehybrid", "falcon_h1",   "nemotron_h"};
constexpr std::string_view kHybridArchitectures[] = {"qwen35",    "qwen35moe",  "qwen3next",
                                                     "lfm2",      "lfm2moe",    "granitehybrid",
                                                     "falcon-h1", "nemotron_h", "nemotron_h_moe"};
constexpr std::string_view kHybridSkipped[] = {"model.visual.", "mtp."};

// In the order of FamilySpec.
constexpr std::array kFamilies = {
    row<LinearTransformerSpec>("linear_transformer", read_linear_transformer),
    row<Rwkv7Spec>("rwkv7", read_rwkv7,
                   {.model_types = kRwkv7Types,
                    .read = read_published_rwkv7,
                    .architectures = kRwkv7Types,
                    .read_gguf = read_gguf_rwkv7}),
    row<Mamba2Spec>("mamba2", read_mamba2,
                    {.model_types = kMamba2Types,
                     .is_untyped = is_untyped_mamba2,
                     .read = read_published_mamba2,
                     .architectures = kMamba2Types,
                     .read_gguf = read_gguf_mamba2}),
    row<GatedLinearSpec>("gated_linear", read_gated_linear,
                         {.model_types = kGatedLinearTypes, .read = read_published_gated_linear}),
    row<Rwkv6Spec>("rwkv6", read_rwkv6, {.model_types = kRwkv6Types, .read = read_published_rwkv6}),
    row<Mamba1Spec>("mamba1", read_mamba1,
                    {.model_types = kMamba1Types,
                     .is_untyped = is_untyped_mamba1,
                     .read = read_published_mamba1}),
    row<HybridSpec>("hybrid", read_hybrid,
                    {.model_types = kHybridTypes,
                     .skipped = kHybridSkipped,
                     .read = read_published_hybrid,
                     .architectures = kHybridArchitectures,
                     .read_gguf = read_gguf_hybrid}),
};
static_assert(kFamilies.size() == std::variant_size_v<FamilySpec>, "a row for each family");

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& family_of(const Spec& spec) { return kFamilies[spec.model.index()]; }

}  // namespace runnel
