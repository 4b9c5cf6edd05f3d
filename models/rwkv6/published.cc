#include "models/rwkv6/published.h"

#include <algorithm>
#include <string>

#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int kMixCount = 5;

int layers_of(const PublishedModel& model) {
  int layers = 0;
  while (layers < kMaxLayers && model.has("blocks." + std::to_string(layers) + ".ffn.key.weight")) {
    ++layers;
  }
  return std::max(layers, 1);
}

// Checks that `found`, a size of that tensor, is a multiple of `of`.
void check_multiple(const PublishedModel& model, const char* tensor, int found, int of,
                    const char* what) {
  if (found % of == 0) return;
  model.config.faults().add("",
                            "tensor " + quote(tensor) + " in " + model.weights + " to have " +
                                std::to_string(of) + " equal parts, " + what,
                            std::to_string(found) + " columns");
}

}  // namespace

void read_published_rwkv6(const PublishedModel& model, Spec& spec) {
  auto& sizes = spec.model.emplace<Rwkv6Spec>();
  sizes.table_rows = model.read_vocabulary("emb.weight", std::nullopt, spec);
  sizes.width = model.size("emb.weight", 1, kMaxWidth);
  sizes.layers = layers_of(model);
  if (!model.has("blocks.0.att.gate.weight")) {
    model.config.faults().add("",
                              "tensor 'blocks.0.att.gate.weight' in " + model.weights +
                                  ", as RWKV-5.2 and RWKV-6 have it (RWKV-5.1 does not, and is "
                                  "not implemented)",
                              "no such tensor");
  }
  sizes.heads = model.size("blocks.0.att.time_faaaa", 0, sizes.width);
  check_multiple(model, "emb.weight", sizes.width, sizes.heads,
                 "as 'blocks.0.att.time_faaaa' says");
  sizes.ffn = model.size("blocks.0.ffn.key.weight", 0, kMaxWidth);
  sizes.version = model.has("blocks.0.att.time_maa_x") ? Rwkv6Version::kSix : Rwkv6Version::kFive;
  if (!sizes.is_six()) return;
  const char* const mixes = "blocks.0.att.time_maa_w1";
  const int columns = model.size(mixes, 1, kMixCount * kMaxWidth);
  check_multiple(model, mixes, columns, kMixCount, "one of each mix");
  sizes.mix_rank = std::max(columns / kMixCount, 1);
  sizes.decay_rank = model.size("blocks.0.att.time_decay_w1", 1, kMaxWidth);
}

}  // namespace runnel
