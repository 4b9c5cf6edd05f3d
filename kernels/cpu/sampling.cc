#include "kernels/cpu/sampling.h"

#include "kernels/cpu/categorical.h"

namespace runnel::cpu {

void sample_row(const Kernels& kernels, const Head& kind, const float* logits, const Choice& choice,
                float* scratch, SampledTo to) {
  const auto& [sampling, top_count, uniforms, penalties, biases, recent, position] = choice;
  Sampled& out = *to.rows;
  const int count = top_count < 0 ? 0 : top_count > kMaxTopLogProbs ? kMaxTopLogProbs : top_count;
  if (kind.kind == HeadKind::kMixtureOfLogistics) {
    const Mixture mixture(logits, kind.components);
    out.value = sampling.greedy ? mixture.mode() : mixture.sample(sampling.temperature, uniforms);
    out.log_prob = mixture.log_prob(out.value);
    out.top_count = count > 0 ? mixture.top(to.top, count) : 0;
    return;
  }
  Categorical row(kernels, logits, kind.values, scratch);
  out.top_count = count > 0 ? row.top(to.top, count) : 0;
  if (penalties != nullptr) row.penalize(*penalties, biases, recent, position);
  out.value = sampling.greedy ? row.mode() : row.sample(sampling, uniforms.choice);
  out.log_prob = row.log_prob(out.value);
}

float score_row(const Kernels& kernels, const Head& kind, const float* logits, int32_t value,
                float* scratch) {
  if (kind.kind == HeadKind::kMixtureOfLogistics) {
    return Mixture(logits, kind.components).log_prob(value);
  }
  return Categorical(kernels, logits, kind.values, scratch).log_prob(value);
}

}  // namespace runnel::cpu
