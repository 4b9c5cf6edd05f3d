// One row of categorical logits.
#pragma once

#include <cstdint>

#include "kernels/control.h"
#include "kernels/cpu/isa.h"
#include "kernels/penalties.h"

namespace runnel::cpu {

class Categorical {
 public:
  // `logits` [values]; `scratch` [2 * values] is the row's own while it lives.
  Categorical(const Kernels& kernels, const float* logits, int values, float* scratch);

  // Changes the logits as the penalties say, for a value at `position` after the recent ones.
  // `biases`: of all rows. Only mode() and sample() see it, and top() must come before.
  void penalize(const RowPenalties& by, const LogitBias* biases, RecentRing recent,
                int64_t position);

  // The most likely value, the lowest of several.
  int32_t mode() const;

  // A value of softmax(logits / temperature), filtered by top_k, top_p and min_p in that order,
  // each over what the one before has kept: the first one whose cumulative share, in the order of
  // values, exceeds `u`. `u` in (0, 1). After it only mode(), log_prob() and top() are of use.
  int32_t sample(const Sampling& sampling, double u);

  // log softmax(logits)[value], without penalties.
  float log_prob(int32_t value) const;

  // The `count` > 0 most likely values; returns how many there are, at most `count`.
  int top(TopLogProb* top, int count) const;

 private:
  // The values that filters have kept: those of likelier logits than `key` stands for, the first
  // `ties` at that logit, and of them all those that weigh at least `least`.
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
  float weighed_ = 0.0F;   // the temperature of the weights; 0: they are of other logits
  double most_given_ = 0;  // the largest logit without penalties
  double log_sum_ = 0;     // of exp(logits - most), without penalties
};

}  // namespace runnel::cpu
