#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/reference/reference_model.h"

namespace runnel::reference {
namespace {

double log_sum_exp(const Vector& x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - most);
  return most + std::log(sum);
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double sigma(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// The log of one logistic's mass in the bin of `value`.
double log_bin(double mean, double raw_log_scale, int value) {
  const double log_scale = std::max(raw_log_scale, -7.0);
  const double y = value / 255.0 * 2 - 1;
  const double centered = y - mean;
  const double plus = std::exp(-log_scale) * (centered + 1.0 / 255);
  const double minus = std::exp(-log_scale) * (centered - 1.0 / 255);
  if (y < -0.999) return -softplus(-plus);
  if (y > 0.999) return -softplus(minus);
  const double difference = sigma(plus) - sigma(minus);
  if (difference > 1e-5) return std::log(difference);
  const double mid = std::exp(-log_scale) * centered;
  return mid - log_scale - 2 * softplus(mid) - std::log(127.5);
}

// The index at which the cumulative sum first exceeds u.
int32_t inverse_cdf(const Vector& probabilities, double u) {
  double sum = 0;
  int32_t last = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    sum += probabilities[i];
    if (probabilities[i] > 0) last = static_cast<int32_t>(i);
    if (sum > u) return last;
  }
  return last;
}

Vector softmax(const Vector& logits, double temperature) {
  Vector p = logits;
  for (double& x : p) x /= temperature;
  const double all = log_sum_exp(p);
  for (double& x : p) x = std::exp(x - all);
  return p;
}

double sampling_scale(double raw, double temperature) {
  return ((raw > 0 ? raw : std::expm1(raw)) + 1.0001) * temperature;
}

int32_t argmax(const Vector& x) {
  return static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

int32_t sample_mixture(const Vector& head, int components, double temperature, double choice,
                       double noise) {
  const Vector logits(head.begin(), head.begin() + components);
  const int32_t c = inverse_cdf(softmax(logits, temperature), choice);
  const double scale = sampling_scale(head[2 * components + c], temperature);
  const double x = head[components + c] + scale * (std::log(noise) - std::log(1 - noise));
  return static_cast<int32_t>(std::nearbyint(std::clamp((x + 1) / 2 * 255, 0.0, 255.0)));
}

}  // namespace

Vector log_softmax(const Vector& logits) {
  const double all = log_sum_exp(logits);
  Vector y = logits;
  for (double& x : y) x -= all;
  return y;
}

Vector mixture_log_probs(const Vector& head, int components) {
  const Vector weights = log_softmax(Vector(head.begin(), head.begin() + components));
  Vector log_p(256);
  for (int value = 0; value < 256; ++value) {
    Vector terms(components);
    for (int c = 0; c < components; ++c) {
      terms[c] = weights[c] + log_bin(head[components + c], head[2 * components + c], value);
    }
    log_p[value] = log_sum_exp(terms);
  }
  return log_p;
}

Vector log_probs(const Head& kind, const Vector& head) {
  return kind.kind == HeadKind::kCategorical ? log_softmax(head)
                                             : mixture_log_probs(head, kind.components);
}

Vector filtered_probabilities(const Vector& logits, const Sampling& sampling) {
  Vector p = softmax(logits, sampling.temperature);
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  // The number of the most likely values to keep.
  size_t kept = p.size();
  if (sampling.top_k > 0) kept = std::min<size_t>(kept, sampling.top_k);
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) mass += p[order[i]];
  if (sampling.top_p < 1) {
    double sum = 0;
    size_t i = 0;
    while (i < kept && sum < sampling.top_p * mass) sum += p[order[i++]];
    kept = std::max<size_t>(i, 1);
  }
  const double least = sampling.min_p * p[order[0]];
  while (kept > 1 && p[order[kept - 1]] < least) --kept;
  for (size_t i = kept; i < p.size(); ++i) p[order[i]] = 0;
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

int32_t sample(const Head& kind, const Vector& head, const Sampling& sampling, double choice,
               double noise) {
  if (sampling.greedy) return argmax(log_probs(kind, head));
  if (kind.kind == HeadKind::kMixtureOfLogistics) {
    return sample_mixture(head, kind.components, sampling.temperature, choice, noise);
  }
  return inverse_cdf(filtered_probabilities(head, sampling), choice);
}

Vector mixture_sampling_probabilities(const Vector& head, int components, double temperature) {
  const Vector weights = softmax(Vector(head.begin(), head.begin() + components), temperature);
  Vector p(256, 0.0);
  for (int c = 0; c < components; ++c) {
    const double scale = sampling_scale(head[2 * components + c], temperature);
    // Values of v + 1/2 and above round up, so these are the edges of the bins.
    const auto below = [&](int value) {
      return sigma(((value + 0.5) / 255 * 2 - 1 - head[components + c]) / scale);
    };
    for (int value = 0; value < 256; ++value) {
      const double upper = value == 255 ? 1.0 : below(value);
      const double lower = value == 0 ? 0.0 : below(value - 1);
      p[value] += weights[c] * (upper - lower);
    }
  }
  return p;
}

}  // namespace runnel::reference
