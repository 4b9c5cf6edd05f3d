#include "kernels/cpu/categorical.h"

#include "kernels/scalar_math.h"
#include "kernels/top_list.h"

namespace runnel::cpu {
namespace {

// An unsigned number in the order of x. The two zeros have the same number.
uint32_t order_key(float x) {
  const float normal = x + 0.0F;
  uint32_t bits;
  __builtin_memcpy(&bits, &normal, sizeof(bits));
  return (bits >> 31) != 0 ? ~bits : bits | (1U << 31);
}

// The highest digit at which `*above` plus the sums from the top down reaches the target. If
// rounding keeps the sum below the target, the lowest digit that holds anything; -1 if no digit
// does. Sets `*above` to the sum over the digits above the one returned.
int descend(const double (&sums)[256], double target, double* above) {
  int found = -1;
  double before = *above;
  double sum = *above;
  for (int digit = 255; digit >= 0; --digit) {
    if (!(sums[digit] > 0.0)) continue;
    found = digit;
    before = sum;
    sum += sums[digit];
    if (sum >= target) break;
  }
  *above = before;
  return found;
}

}  // namespace

Categorical::Categorical(const Kernels& kernels, const float* logits, int values, float* scratch)
    : kernels_(kernels),
      given_(logits),
      values_(values),
      logits_(scratch),
      weights_(scratch + values) {
  most_ = kernels.finite(logits, values, logits_);
  most_given_ = most_;
  weigh(1.0F);
  log_sum_ = log_of(sum_);
}

// The weights are not used until the next weigh(), so until then they record which values have been
// seen.
void Categorical::penalize(const RowPenalties& by, const LogitBias* biases, RecentRing recent,
                           int64_t position) {
  float* const counts = weights_;
  if (by.looks_back()) {
    recent.before(position, [&](int64_t, int32_t value) { counts[value] = -1.0F; });
    recent.before(position, [&](int64_t at, int32_t value) {
      float& logit = logits_[value];
      if (counts[value] < 0.0F) {
        logit = logit > 0.0F ? logit / by.repetition : logit * by.repetition;
        counts[value] = 0.0F;
      }
      if (at >= by.from) counts[value] += 1.0F;
    });
    recent.before(position, [&](int64_t, int32_t value) {
      if (counts[value] == 0.0F) return;
      logits_[value] -= by.frequency * counts[value];
      logits_[value] -= by.presence;
      counts[value] = 0.0F;
    });
  }
  for (int i = 0; i < by.biases; ++i) {
    const LogitBias& term = biases[by.first_bias + i];
    logits_[term.value] += term.bias;
  }
  most_ = kernels_.finite(logits_, values_, logits_);
  weighed_ = 0.0F;
}

void Categorical::weigh(float temperature) {
  const float inverse = 1.0F / temperature;
  // A temperature near zero would overflow. This scale already leaves only the most likely values.
  const float scale = inverse < 1e30F ? inverse : 1e30F;
  kernels_.exp(logits_, values_, most_, scale, weights_);
  weighed_ = temperature;
  sum_ = 0.0;
  for (int i = 0; i < values_; ++i) sum_ += weights_[i];
}

int32_t Categorical::mode() const {
  int32_t value = 0;
  while (value + 1 < values_ && logits_[value] != most_) ++value;
  return value;
}

float Categorical::log_prob(int32_t value) const {
  float logit = 0.0F;
  kernels_.finite(given_ + value, 1, &logit);
  return static_cast<float>(static_cast<double>(logit) - most_given_ - log_sum_);
}

int Categorical::top(TopLogProb* top, int count) const {
  TopList list(top, count);
  for (int32_t value = 0; value < values_; ++value) list.offer(value, logits_[value]);
  for (int i = 0; i < list.size(); ++i) top[i].log_prob = log_prob(top[i].value);
  return list.size();
}

// Calls each(value, weight, key) for the kept values, ascending, until it returns false.
template <typename Visit>
void Categorical::visit(Kept kept, const Visit& each) const {
  int64_t ties = kept.ties;
  for (int32_t value = 0; value < values_; ++value) {
    const uint32_t key = order_key(logits_[value]);
    if (key < kept.key || weights_[value] < kept.least) continue;
    if (key == kept.key && ties-- <= 0) continue;
    if (!each(value, weights_[value], key)) return;
  }
}

// The sum of the kept weights, in the order of values.
double Categorical::mass_of(Kept kept) const {
  if (kept.all()) return sum_;
  double sum = 0.0;
  visit(kept, [&](int32_t, float weight, uint32_t) {
    sum += weight;
    return true;
  });
  return sum;
}

// Narrows `kept` to the fewest most likely values whose amounts reach the target, without sorting.
// Each of four passes adds up the amounts by the next eight bits of the key, and continues within
// the digit that reaches the target.
template <typename Amount>
Categorical::Kept Categorical::narrow(Kept kept, double target, const Amount& amount) const {
  uint32_t prefix = 0;
  double above = 0.0;  // the amounts of likelier logits than those with the prefix
  double each = 0.0;   // the amount of one value at the last key
  for (int shift = 24; shift >= 0; shift -= 8) {
    double sums[256] = {};
    visit(kept, [&](int32_t, float weight, uint32_t key) {
      if ((static_cast<uint64_t>(key ^ prefix) >> (shift + 8)) == 0) {
        sums[(key >> shift) & 255] += amount(weight);
      }
      return true;
    });
    const int digit = descend(sums, target, &above);
    if (digit < 0) return kept;
    prefix |= static_cast<uint32_t>(digit) << shift;
  }
  visit(kept, [&](int32_t, float weight, uint32_t key) {
    if (key == prefix) each = amount(weight);
    return key != prefix;
  });
  int64_t ties = 1;
  const int64_t most = prefix == kept.key ? kept.ties : values_;
  while (ties < most && above + static_cast<double>(ties) * each < target) ++ties;
  return {prefix, ties, kept.least};
}

Categorical::Kept Categorical::filter(const Sampling& sampling) const {
  const auto one = [](float) { return 1.0; };
  const auto mass = [](float weight) { return static_cast<double>(weight); };
  Kept kept;
  if (sampling.top_k > 0 && sampling.top_k < values_) kept = narrow(kept, sampling.top_k, one);
  if (sampling.top_p < 1.0F) {
    kept = narrow(kept, sampling.top_p * mass_of(kept), mass);
  }
  // The most likely value weighs exactly 1 and so always stays.
  kept.least = sampling.min_p < 1.0F ? sampling.min_p : 1.0F;
  return kept;
}

int32_t Categorical::sample(const Sampling& sampling, double u) {
  if (sampling.temperature != weighed_) weigh(sampling.temperature);
  const Kept kept = filter(sampling);
  const double total = mass_of(kept);
  double sum = 0.0;
  int32_t chosen = 0;  // the most likely value is kept and weighs 1, so it or another is visited
  visit(kept, [&](int32_t value, float weight, uint32_t) {
    sum += weight;
    chosen = weight > 0.0F ? value : chosen;
    return !(sum > u * total);
  });
  return chosen;
}

}  // namespace runnel::cpu
