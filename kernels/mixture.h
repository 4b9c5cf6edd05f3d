// One row of a discretized mixture of logistics over the values 0..255, scaled to [-1, 1]. Sampling
// and scoring differ in the same way as in the authors' code: see draw() and log_prob(). It is
// plain constexpr code, component by component, so the results are the same on the host and on a
// device, where each component has a thread.
#pragma once

#include <cstdint>

#include "kernels/control.h"
#include "kernels/device.h"
#include "kernels/scalar_math.h"
#include "kernels/top_list.h"

namespace runnel {

// The two uniform numbers of a position, in (0, 1).
struct Uniforms {
  double choice;  // chooses the category or the component
  double noise;   // the noise of the logistic
};

class Mixture {
 public:
  static constexpr int32_t kValues = 256;

  struct Component {
    double weight;  // exp(logit - largest logit)
    double mean;
    double log_scale;
    double inverse_scale;
  };

  // `row` [3 * components]: logits, means, raw log-scales.
  RUNNEL_DEVICE constexpr Mixture(const float* row, int components)
      : row_(row), components_(components) {
    most_ = finite(row[0]);
    for (int i = 1; i < components; ++i) most_ = finite(row[i]) > most_ ? finite(row[i]) : most_;
  }

  RUNNEL_DEVICE constexpr int components() const { return components_; }

  RUNNEL_DEVICE constexpr Component component(int index) const {
    const double raw = finite(row_[2 * components_ + index]);
    const double log_scale = raw > -7.0 ? raw : -7.0;
    return {exp_of(finite(row_[index]) - most_), finite(row_[components_ + index]), log_scale,
            exp_of(-log_scale)};
  }

  // A component's weight in softmax(logits / temperature), without the common factor.
  RUNNEL_DEVICE constexpr double tempered_weight(int index, float temperature) const {
    return exp_of((finite(row_[index]) - most_) / temperature);
  }

  // The component that `u` chooses. `weight(index)` is tempered_weight() of a component.
  template <typename Weights>
  RUNNEL_DEVICE constexpr int32_t choose(double u, const Weights& weight) const {
    double total = 0.0;
    for (int i = 0; i < components_; ++i) total += weight(i);
    double sum = 0.0;
    int32_t chosen = 0;
    for (int i = 0; i < components_; ++i) {
      const double more = weight(i);
      sum += more;
      if (more > 0.0) chosen = i;
      if (sum > u * total) break;
    }
    return chosen;
  }

  // Draws from one component: mean + s * temperature * (log u - log(1 - u)), with s = elu(raw) +
  // 1.0001, rounded to a value.
  RUNNEL_DEVICE constexpr int32_t draw(int component, float temperature, double noise) const {
    const double mean = finite(row_[components_ + component]);
    const double raw = finite(row_[2 * components_ + component]);
    const double scale = (raw > 0.0 ? raw : exp_of(raw) - 1.0) + 1.0001;
    const double logistic = log_of(noise) - log_of(1.0 - noise);
    return to_value(mean + scale * temperature * logistic);
  }

  // Chooses a component of softmax(logits / temperature) by `uniforms.choice`, then calls draw().
  RUNNEL_DEVICE constexpr int32_t sample(float temperature, Uniforms uniforms) const {
    const int32_t chosen =
        choose(uniforms.choice, [&](int i) { return tempered_weight(i, temperature); });
    return draw(chosen, temperature, uniforms.noise);
  }

  // The component's mass in the value's bin, as in training: s = exp(max(raw, -7)), and the outer
  // bins are open. If the mass is 1e-5 or less, returns the density at the middle of the bin
  // divided by 127.5.
  RUNNEL_DEVICE static constexpr double mass(const Component& component, int32_t value) {
    const double upper = component.inverse_scale * (edge(value) - component.mean);
    const double lower = component.inverse_scale * (edge(value - 1) - component.mean);
    if (value == 0) return sigmoid(upper);
    if (value == kValues - 1) return sigmoid(-lower);
    return inner_mass(component, value, sigmoid(lower), sigmoid(upper));
  }

  // The natural log p(value), from the sums over components of weight times mass, and of weights.
  RUNNEL_DEVICE constexpr float log_prob_of(int32_t value, double mass, double weights) const {
    const double share = mass / weights;
    return static_cast<float>(share > 1e-290 ? log_of(share) : log_prob_far(value));
  }

  RUNNEL_DEVICE constexpr float log_prob(int32_t value) const {
    double sum = 0.0;
    double weights = 0.0;
    for (int i = 0; i < components_; ++i) {
      const Component at = component(i);
      sum += at.weight * mass(at, value);
      weights += at.weight;
    }
    return log_prob_of(value, sum, weights);
  }

  // The `count` most likely values by log_prob(); `count` > 0. Returns how many there are, at most
  // `count`. It computes the same sums as log_prob() for every value, but the cumulative value of
  // each inner edge only once.
  constexpr int top(TopLogProb* top, int count) const {
    double sums[kValues] = {};
    double weights = 0.0;
    for (int i = 0; i < components_; ++i) {
      const Component at = component(i);
      weights += at.weight;
      double below = sigmoid(at.inverse_scale * (edge(0) - at.mean));
      sums[0] += at.weight * below;
      for (int32_t value = 1; value < kValues - 1; ++value) {
        const double upto = sigmoid(at.inverse_scale * (edge(value) - at.mean));
        sums[value] += at.weight * inner_mass(at, value, below, upto);
        below = upto;
      }
      sums[kValues - 1] += at.weight * mass(at, kValues - 1);
    }
    TopList list(top, count);
    for (int32_t value = 0; value < kValues; ++value) {
      list.offer(value, log_prob_of(value, sums[value], weights));
    }
    return list.size();
  }

  // The most likely value by log_prob(); the lowest if there are several.
  constexpr int32_t mode() const {
    TopLogProb best{};
    top(&best, 1);
    return best.value;
  }

 private:
  // Clamps any output of the head to a finite number.
  RUNNEL_DEVICE static constexpr double finite(float x) {
    if (!(x > -1e30F)) return -1e30;
    return x < 1e30F ? x : 1e30;
  }
  RUNNEL_DEVICE static constexpr double middle(int32_t value) { return 2.0 * value / 255.0 - 1.0; }
  // The edge between the bins of `value` and value + 1.
  RUNNEL_DEVICE static constexpr double edge(int32_t value) {
    return (2.0 * value + 1.0) / 255.0 - 1.0;
  }
  // (x + 1) / 2 * 255, rounded half to even, within 0..255.
  RUNNEL_DEVICE static constexpr int32_t to_value(double x) {
    const double scaled = (x + 1.0) / 2.0 * 255.0;
    if (!(scaled > 0.0)) return 0;
    if (scaled > 255.0) return 255;
    constexpr double kShift = 0x1.8p52;
    return static_cast<int32_t>((scaled + kShift) - kShift);
  }

  // The mass of an inner bin between the cumulative values at its two edges.
  RUNNEL_DEVICE static constexpr double inner_mass(const Component& component, int32_t value,
                                                   double below, double upto) {
    const double difference = upto - below;
    if (difference > kThinBin) return difference;
    const double x = component.inverse_scale * (middle(value) - component.mean);
    const double e = exp_of(x > 0.0 ? -x : x);
    return component.inverse_scale * e / ((1.0 + e) * (1.0 + e)) / 127.5;
  }
  RUNNEL_DEVICE static constexpr double log_mass(const Component& component, int32_t value) {
    const double upper = component.inverse_scale * (edge(value) - component.mean);
    const double lower = component.inverse_scale * (edge(value - 1) - component.mean);
    if (value == 0) return -softplus(-upper);
    if (value == kValues - 1) return -softplus(lower);
    const double difference = sigmoid(upper) - sigmoid(lower);
    if (difference > kThinBin) return log_of(difference);
    const double x = component.inverse_scale * (middle(value) - component.mean);
    return x - component.log_scale - 2.0 * softplus(x) - kLog127_5;
  }
  // log p(value), for probabilities that are too small for a double.
  RUNNEL_DEVICE constexpr double log_prob_far(int32_t value) const {
    double largest = -1e300;
    double weights = 0.0;
    for (int i = 0; i < components_; ++i) {
      const double term = finite(row_[i]) - most_ + log_mass(component(i), value);
      largest = term > largest ? term : largest;
      weights += component(i).weight;
    }
    double sum = 0.0;
    for (int i = 0; i < components_; ++i) {
      sum += exp_of(finite(row_[i]) - most_ + log_mass(component(i), value) - largest);
    }
    return largest + log_of(sum) - log_of(weights);
  }

  static constexpr double kLog127_5 = 4.848116363829925;
  static constexpr double kThinBin = 1e-5;

  const float* row_;
  int components_;
  double most_ = 0.0;  // the largest logit
};

}  // namespace runnel
