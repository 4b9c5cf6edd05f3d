// Samples from one row of categorical logits.
#pragma once

#include <cstdint>

#include "kernels/control.h"
#include "kernels/cpu/isa.h"
#include "kernels/penalties.h"

namespace runnel::cpu {

class Categorical {
 public:
  // `logits` [values]. Nothing else may use `scratch` [2 * values] while the object exists.
  Categorical(const Kernels& kernels, const float* logits, int values, float* scratch);

  // Applies the penalties to the logits, for a value at `position` after the recent ones. `biases`
  // has the biases of all rows. Only mode() and sample() use the penalized logits. top() must be
  // called before penalize().
  void penalize(const RowPenalties& by, const LogitBias* biases, RecentRing recent,
                int64_t position);

  // The most likely value; the smallest if there are several.
  int32_t mode() const;

  // Samples a value of softmax(logits / temperature). top_k, top_p and min_p filter the values in
  // this order; each filter applies to the values that the one before has kept. The result is the
  // first value whose cumulative probability, in the order of values, exceeds `u`, which is in (0,
  // 1). After sample(), only mode(), log_prob() and top() may be called.
  int32_t sample(const Sampling& sampling, double u);

  // log softmax(logits)[value], without penalties.
  float log_prob(int32_t value) const;

  // The `count` most likely values; `count` > 0. Returns how many there are, at most `count`.
  int top(TopLogProb* top, int count) const;

 private:
  // The values that the filters have kept: the values whose logit is greater than that of `key`,
  // and the first `ties` values with that logit. Of these, only values with a weight of at least
  // `least`.
  struct Kept {
    uint32_t key = 0;
    int64_t ties = INT64_MAX;
    float least = 0.0F;

    bool all() const { return key == 0 && ties == INT64_MAX && least <= 0.0F; }
  };

  void weigh(float temperature);
  Kept filter(const Sampling& sampling) const;
  template <typename Visit>
  void visit(Kept kept, const Visit& each) const;
  template <typename Amount>
  Kept narrow(Kept kept, double target, const Amount& amount) const;
  double mass_of(Kept kept) const;

  const Kernels& kernels_;
  const float* const given_;
  const int values_;
  float* logits_;          // finite, and penalized
  float* weights_;         // exp((logits - most) / temperature) of the latest weigh()
  double sum_ = 0;         // of the weights, at least 1
  float most_ = 0.0F;      // the largest logit
  float weighed_ = 0.0F;   // the temperature of the weights; 0: they are out of date
  double most_given_ = 0;  // the largest logit without penalties
  double log_sum_ = 0;     // log of the sum of exp(logits - most), without penalties
};

}  // namespace runnel::cpu
