// One row of a discretized mixture of logistics over the values 0..255, scaled to [-1, 1].
// Sampling and scoring differ as they do in the authors' code: see sample() and log_prob().
#pragma once

#include <cstdint>

#include "kernels/control.h"
#include "kernels/cpu/sampling.h"

namespace runnel::cpu {

class Mixture {
 public:
  // `row` [3 * components]: logits, means, raw log-scales.
  Mixture(const float* row, int components);

  // A component of softmax(logits / temperature) by `uniforms.choice`, then
  // mean + s * temperature * (log u - log(1 - u)), s = elu(raw) + 1.0001, rounded to a value.
  int32_t sample(float temperature, Uniforms uniforms) const;

  // The training form: the logistic's mass in the value's bin, s = exp(max(raw, -7)), the outer
  // bins open; where the mass is 1e-5 or less, the density at the bin's middle over 127.5.
  float log_prob(int32_t value) const;

  // The most likely value by log_prob(), the lowest of several.
  int32_t mode() const;

  // The `count` > 0 most likely values by log_prob(); returns how many there are, at most `count`.
  int top(TopLogProb* top, int count) const;

 private:
  struct Component {
    double weight;  // exp(logit - largest logit)
    double mean;
    double log_scale;
    double inverse_scale;
  };
  Component component(int index) const;
  int32_t choose(float temperature, double u) const;
  // log p(value) where the probabilities themselves are too small for a double.
  double log_prob_far(int32_t value) const;
  float log_prob_of(int32_t value, double mass, double weights) const;
  static double mass(const Component& component, int32_t value);
  static double inner_mass(const Component& component, int32_t value, double below, double upto);
  static double log_mass(const Component& component, int32_t value);

  const float* row_;
  const int components_;
  double most_;  // the largest logit
};

}  // namespace runnel::cpu
