// What is done with the rows of a head's output, a block to a row: choosing a value, and its
// log-probability. Wherever many terms meet, they are integers or meet as one fixed tree, so that
// nothing depends on which thread came first.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"
#include "kernels/mixture.h"
#include "kernels/philox.h"

namespace runnel::cuda {

// ---- the most likely values ---------------------------------------------------------------------

// Orders values by how likely they are, ties by the lower value; never 0.
RUNNEL_DEVICE constexpr uint64_t rank_key(float likelihood, int32_t value) {
  return (uint64_t{order_key(likelihood)} << 32) | ~static_cast<uint32_t>(value);
}
RUNNEL_DEVICE constexpr int32_t ranked_value(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// The largest of rank_key(likelihood(value), value) below `limit` over all values.
template <typename Block, typename Likelihood>
RUNNEL_DEVICE uint64_t next_rank(Block& block, int values, uint64_t limit,
                                 const Likelihood& likelihood) {
  typename Block::template Each<uint64_t> best;
  block.each([&](int t) {
    uint64_t largest = 0;
    for (int32_t value = t; value < values; value += Block::kThreads) {
      const uint64_t key = rank_key(likelihood(value), value);
      if (key < limit && key > largest) largest = key;
    }
    best[t] = largest;
  });
  return block.largest(best);
}

// The `count` most likely values into `top`, most likely first; returns how many there are.
template <typename Block, typename Likelihood, typename LogProb>
RUNNEL_DEVICE int top_values(Block& block, int values, int count, const Likelihood& likelihood,
                             const LogProb& log_prob, TopLogProb* top) {
  uint64_t key = UINT64_MAX;
  const int found = count < values ? count : values;
  for (int i = 0; i < found; ++i) {
    key = next_rank(block, values, key, likelihood);
    const int32_t value = ranked_value(key);
    block.each([&](int t) {
      if (t == 0) top[i] = {value, log_prob(value)};
    });
  }
  return found;
}

// ---- mixture of logistics -----------------------------------------------------------------------

// Shared memory: a term and a weight of each component, one result, and all values' likelihoods.
RUNNEL_DEVICE constexpr int64_t mixture_shared_bytes(int components) {
  return (2 * int64_t{components} + 1) * 8 + Mixture::kValues * 4;
}

// A thread to a component, or to a value where all are looked at.
template <typename Block>
class MixtureRow {
 public:
  // `all_values`: mode or top values will be asked for.
  RUNNEL_DEVICE MixtureRow(Block& block, const float* row, int components, bool all_values)
      : block_(block),
        mixture_(row, components),
        all_values_(all_values),
        terms_(block.template shared<double>()),
        likelihoods_(reinterpret_cast<float*>(terms_ + 2 * components + 1)) {
    if (!all_values_) return;
    block_.phase([&](int t) {
      for (int32_t value = t; value < Mixture::kValues; value += Block::kThreads) {
        likelihoods_[value] = mixture_.log_prob(value);
      }
    });
  }

  RUNNEL_DEVICE float log_prob(int32_t value) {
    if (all_values_) return likelihoods_[value];
    double* weights = terms_ + mixture_.components();
    block_.phase([&](int t) {
      for (int i = t; i < mixture_.components(); i += Block::kThreads) {
        const Mixture::Component at = mixture_.component(i);
        terms_[i] = at.weight * Mixture::mass(at, value);
        weights[i] = at.weight;
      }
    });
    block_.phase([&](int t) {
      if (t != 0) return;
      double sum = 0.0;
      double weight = 0.0;
      for (int i = 0; i < mixture_.components(); ++i) {
        sum += terms_[i];
        weight += weights[i];
      }
      *result<float>() = mixture_.log_prob_of(value, sum, weight);
    });
    return take<float>();
  }

  RUNNEL_DEVICE int32_t sample(const Sampling& sampling, Uniforms uniforms) {
    if (sampling.greedy) {
      return ranked_value(next_rank(block_, Mixture::kValues, UINT64_MAX, likelihood()));
    }
    block_.phase([&](int t) {
      for (int i = t; i < mixture_.components(); i += Block::kThreads) {
        terms_[i] = mixture_.tempered_weight(i, sampling.temperature);
      }
    });
    block_.phase([&](int t) {
      if (t != 0) return;
      const int32_t chosen = mixture_.choose(uniforms.choice, [&](int i) { return terms_[i]; });
      *result<int32_t>() = mixture_.draw(chosen, sampling.temperature, uniforms.noise);
    });
    return take<int32_t>();
  }

  RUNNEL_DEVICE int top(int count, TopLogProb* top) {
    return top_values(block_, Mixture::kValues, count, likelihood(), likelihood(), top);
  }

 private:
  RUNNEL_DEVICE auto likelihood() const {
    return [this](int32_t value) { return likelihoods_[value]; };
  }
  // One number that a thread leaves behind for all the others.
  template <typename T>
  RUNNEL_DEVICE T* result() const {
    return reinterpret_cast<T*>(terms_ + 2 * mixture_.components());
  }
  // The result, once all threads have read it: the next one may then take its place.
  template <typename T>
  RUNNEL_DEVICE T take() {
    const T value = *result<T>();
    block_.phase([](int) {});
    return value;
  }

  Block& block_;
  Mixture mixture_;
  bool all_values_;
  double* terms_;
  float* likelihoods_;  // [Mixture::kValues], where all_values_
};

// ---- categorical --------------------------------------------------------------------------------

inline constexpr int kDigits = 256;
inline constexpr int64_t kCategoricalSharedBytes = (kDigits + 2) * 8;

// Weights are exp((logit - largest) / temperature) in units of 2^-40: integers, whose sums over at
// most 2^20 values are exact in 64 bits and the same in any order.
template <typename Block>
class CategoricalRow {
 public:
  RUNNEL_DEVICE CategoricalRow(Block& block, const float* logits, int values)
      : block_(block), logits_(logits), values_(values), table_(block.template shared<uint64_t>()) {
    most_ = logit(mode());
    typename Block::template Each<double> part;
    block_.each([&](int t) {
      double sum = 0.0;
      for (int i = t; i < values_; i += Block::kThreads) sum += exp_nonpositive(logit(i) - most_);
      part[t] = sum;
    });
    log_sum_ = log_of(block_.sum(part));
  }

  RUNNEL_DEVICE float log_prob(int32_t value) const {
    return static_cast<float>(static_cast<double>(logit(value)) - most_ - log_sum_);
  }

  RUNNEL_DEVICE int32_t mode() {
    return ranked_value(next_rank(block_, values_, UINT64_MAX, likelihoods()));
  }

  RUNNEL_DEVICE int top(int count, TopLogProb* top) {
    return top_values(
        block_, values_, count, likelihoods(), [this](int32_t value) { return log_prob(value); },
        top);
  }

  // The first value whose cumulative share, in the order of values, exceeds u.
  RUNNEL_DEVICE int32_t sample(const Sampling& sampling, Uniforms uniforms) {
    if (sampling.greedy) return mode();
    const float inverse = 1.0F / sampling.temperature;
    scale_ = inverse < 1e30F ? inverse : 1e30F;
    const Kept kept = filter(sampling);
    const int64_t share = (values_ + Block::kThreads - 1) / Block::kThreads;
    typename Block::template Each<uint64_t> sums;
    block_.each([&](int t) { table_[t] = sums[t] = sum_of_share(kept, t, share); });
    const double target = uniforms.choice * static_cast<double>(block_.sum(sums));
    block_.phase([&](int t) {
      if (t == 0) table_[kDigits] = locate(kept, share, target);
    });
    const int32_t chosen = static_cast<int32_t>(table_[kDigits]);
    block_.phase([](int) {});
    return chosen;
  }

 private:
  static_assert(Block::kThreads == kDigits, "a thread to a digit, and to a share of the values");

  // The values that filters have kept: those of likelier logits than `key` stands for, those at
  // that logit up to `last_tie`, and of them all that weigh at least `least`.
  struct Kept {
    uint32_t key = 0;
    int32_t last_tie = INT32_MAX;
    float least = 0.0F;
  };

  RUNNEL_DEVICE auto likelihoods() const {
    return [this](int32_t value) { return logit(value); };
  }
  RUNNEL_DEVICE float logit(int32_t value) const { return finite(logits_[value]); }
  RUNNEL_DEVICE float weight(int32_t value) const {
    return exp_nonpositive((logit(value) - most_) * scale_);
  }
  RUNNEL_DEVICE static uint64_t mass(float weight) {
    return static_cast<uint64_t>(static_cast<double>(weight) * 0x1p40 + 0.5);
  }
  RUNNEL_DEVICE bool keeps(Kept kept, int32_t value) const {
    const uint32_t key = order_key(logit(value));
    if (key < kept.key || (key == kept.key && value > kept.last_tie)) return false;
    return weight(value) >= kept.least;
  }
  RUNNEL_DEVICE uint64_t mass_of(Kept kept, int32_t value) const {
    return keeps(kept, value) ? mass(weight(value)) : 0;
  }

  RUNNEL_DEVICE uint64_t sum_of_share(Kept kept, int64_t index, int64_t share) const {
    uint64_t sum = 0;
    for (int64_t i = index * share; i < (index + 1) * share && i < values_; ++i) {
      sum += mass_of(kept, static_cast<int32_t>(i));
    }
    return sum;
  }

  // Walks the sums of shares, in the table, and then the values of one share. The most likely value
  // is always kept and weighs 1, so the total is not zero.
  RUNNEL_DEVICE uint64_t locate(Kept kept, int64_t share, double target) const {
    const uint64_t* sums = table_;
    uint64_t before = 0;
    int at = 0;
    int last = 0;  // the last share that holds anything
    for (; at < kDigits; ++at) {
      if (sums[at] > 0) last = at;
      if (static_cast<double>(before + sums[at]) > target) break;
      before += sums[at];
    }
    if (at == kDigits) {  // rounding: the target is the total
      at = last;
      before -= sums[last];
    }
    int64_t chosen = at * share;
    for (int64_t i = at * share; i < (at + 1) * share && i < values_; ++i) {
      const uint64_t more = mass_of(kept, static_cast<int32_t>(i));
      if (more > 0) chosen = i;
      before += more;
      if (static_cast<double>(before) > target) break;
    }
    return static_cast<uint64_t>(chosen);
  }

  // Narrows `kept` to the fewest most likely values whose amounts reach the target: each of four
  // passes adds up the amounts by the next eight bits of the key and goes into the digit that
  // reaches it.
  template <typename Amount>
  RUNNEL_DEVICE Kept narrow(Kept kept, double target, const Amount& amount) {
    uint32_t prefix = 0;
    uint64_t above = 0;  // the amounts of likelier logits than the prefix stands for
    for (int shift = 24; shift >= 0; shift -= 8) {
      block_.phase([&](int t) { table_[t] = 0; });
      block_.phase([&](int t) {
        for (int32_t value = t; value < values_; value += Block::kThreads) {
          const uint32_t key = order_key(logit(value));
          if (((uint64_t{key} ^ prefix) >> (shift + 8)) != 0 || !keeps(kept, value)) continue;
          block_.add(&table_[(key >> shift) & 255], amount(value));
        }
      });
      block_.phase([&](int t) {
        if (t == 0) descend(target, above);
      });
      prefix |= static_cast<uint32_t>(table_[kDigits]) << shift;
      above = table_[kDigits + 1];
      block_.phase([](int) {});
    }
    return cut_ties(kept, prefix, target, above, amount);
  }

  // Leaves in the table the highest digit at which `above` plus the sums from the top down reaches
  // the target, or the lowest one that holds anything, and the sum over the digits above it.
  RUNNEL_DEVICE void descend(double target, uint64_t above) {
    int found = 0;
    uint64_t before = above;
    uint64_t sum = above;
    for (int digit = kDigits - 1; digit >= 0; --digit) {
      if (table_[digit] == 0) continue;
      found = digit;
      before = sum;
      sum += table_[digit];
      if (static_cast<double>(sum) >= target) break;
    }
    table_[kDigits] = static_cast<uint64_t>(found);
    table_[kDigits + 1] = before;
  }

  // Of the values at the last key, the first so many as the target asks for.
  template <typename Amount>
  RUNNEL_DEVICE Kept cut_ties(Kept kept, uint32_t key, double target, uint64_t above,
                              const Amount& amount) {
    block_.phase([&](int t) {
      if (t != 0) return;
      int32_t last = kept.last_tie;
      uint64_t sum = above;
      for (int32_t value = 0; value < values_; ++value) {
        if (order_key(logit(value)) != key || !keeps(kept, value)) continue;
        last = value;
        sum += amount(value);
        if (static_cast<double>(sum) >= target) break;
      }
      table_[kDigits] = static_cast<uint64_t>(last);
    });
    const int32_t last = static_cast<int32_t>(table_[kDigits]);
    block_.phase([](int) {});
    return {.key = key, .last_tie = last, .least = kept.least};
  }

  RUNNEL_DEVICE Kept filter(const Sampling& sampling) {
    Kept kept;
    if (sampling.top_k > 0 && sampling.top_k < values_) {
      kept = narrow(kept, sampling.top_k, [](int32_t) { return uint64_t{1}; });
    }
    if (sampling.top_p < 1.0F) {
      typename Block::template Each<uint64_t> part;
      block_.each([&](int t) {
        uint64_t sum = 0;
        for (int32_t i = t; i < values_; i += Block::kThreads) sum += mass_of(kept, i);
        part[t] = sum;
      });
      const double target = sampling.top_p * static_cast<double>(block_.sum(part));
      kept = narrow(kept, target, [this](int32_t value) { return mass(weight(value)); });
    }
    // The most likely value weighs exactly 1 and so always stays.
    kept.least = sampling.min_p < 1.0F ? sampling.min_p : 1.0F;
    return kept;
  }

  Block& block_;
  const float* logits_;
  int values_;
  uint64_t* table_;       // [kDigits] sums, and two results
  float most_ = 0.0F;     // the largest logit
  float scale_ = 1.0F;    // 1 / temperature
  double log_sum_ = 0.0;  // of exp(logits - most)
};

// ---- kernels ------------------------------------------------------------------------------------

// Calls body(row) with what works on one row of the head's output.
// `all_values`: mode or top values will be asked for.
template <typename Block, typename Body>
RUNNEL_DEVICE void with_head_row(Block& block, const Head& kind, const float* row, bool all_values,
                                 const Body& body) {
  if (kind.kind == HeadKind::kCategorical) {
    CategoricalRow<Block> categorical(block, row, kind.values);
    body(categorical);
  } else {
    MixtureRow<Block> mixture(block, row, kind.components, all_values);
    body(mixture);
  }
}

inline constexpr int kHeadThreads = 256;

RUNNEL_DEVICE constexpr int64_t head_shared_bytes(const Head& kind) {
  return kind.kind == HeadKind::kCategorical ? kCategoricalSharedBytes
                                             : mixture_shared_bytes(kind.components);
}

// What a row's step has come to.
struct Sampled {
  int32_t value;
  int64_t position;
  bool last;  // the row freezes
};

// Chooses the next value of a slot that has consumed `inputs` more, from its row of the head's
// output, and writes it down: into `out` as row `row`'s, and in the slot's control.
template <typename Block>
RUNNEL_DEVICE Sampled sample_row(Block& block, const Head& kind, const float* head, int row,
                                 int inputs, Control& control, Emitted* out) {
  const Control held = control;
  const int64_t position = held.position + inputs;
  const PhiloxCounter words = philox_words(held.seed, position, held.stream, 0);
  const Uniforms uniforms = {philox_uniform(words.word[0]), philox_uniform(words.word[1])};
  int32_t value = 0;
  const int wanted = held.top_log_probs < kMaxTopLogProbs ? held.top_log_probs : kMaxTopLogProbs;
  const bool all_values = held.sampling.greedy || wanted > 0;
  with_head_row(block, kind, head, all_values, [&](auto& of) {
    value = of.sample(held.sampling, uniforms);
    const float log_prob = of.log_prob(value);
    const int count = wanted > 0 ? of.top(wanted, out->top) : 0;
    block.each([&](int t) {
      if (t != 0) return;
      out->row = row;
      out->value = value;
      out->position = position;
      out->log_prob = log_prob;
      out->top_count = count;
    });
  });
  // All threads have read the control by now: there were phases since.
  block.each([&](int t) {
    if (t != 0) return;
    control.position = position;
    control.pending = value;
    control.remaining = held.remaining - 1;
  });
  return {.value = value, .position = position, .last = held.remaining <= 1};
}

struct SampleArgs {
  Rows rows;
  Outputs outputs;
  Head kind;
  const float* head;
  int64_t head_stride;
  int head_rows;
  Control* control;
  Emitted* emitted;
};

// The end of a step, a block to a row of the batch.
struct SampleKernel {
  using Args = SampleArgs;
  static constexpr int kThreads = kHeadThreads;
  static constexpr int kResident = 1;

  static constexpr Launch launch(const Args& args) {
    return {.blocks = args.rows.count, .shared_bytes = head_shared_bytes(args.kind)};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int row = static_cast<int>(block.index());
    const int32_t slot = args.rows.slot[row];
    const int32_t head_row = args.outputs.head_row[row];
    Emitted* out = args.emitted + row;
    if (slot < 0 || head_row < 0) {
      block.each([&](int t) {
        if (t != 0) return;
        out->row = -1;
        if (slot < 0) return;
        Control& control = args.control[slot];
        control.position += args.rows.first[row + 1] - args.rows.first[row];
        control.pending = args.outputs.pending[row];
      });
      return;
    }
    block.require(head_row < args.head_rows, "sample: a row of the head");
    const Sampled sampled =
        sample_row(block, args.kind, args.head + head_row * args.head_stride, row,
                   args.rows.first[row + 1] - args.rows.first[row], args.control[slot], out);
    // All threads have read the row's slot by now, too.
    block.each([&](int t) {
      if (t == 0 && sampled.last) args.rows.slot[row] = -1;
    });
  }
};

struct ScoreArgs {
  Head kind;
  const float* head;
  int64_t head_stride;
  const int32_t* targets;
  float* log_probs;
};

// A block to a row of the head.
struct ScoreKernel {
  using Args = ScoreArgs;
  static constexpr int kThreads = kHeadThreads;
  static constexpr int kResident = 2;

  static constexpr Launch launch(int64_t rows, const Args& args) {
    return {.blocks = rows, .shared_bytes = head_shared_bytes(args.kind)};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t row = block.index();
    const int32_t target = args.targets[row];
    block.require(target >= 0 && target < args.kind.values, "score: a target is one of the values");
    const float* head = args.head + row * args.head_stride;
    with_head_row(block, args.kind, head, false, [&](auto& of) {
      const float log_prob = of.log_prob(target);
      block.each([&](int t) {
        if (t == 0) args.log_probs[row] = log_prob;
      });
    });
  }
};

}  // namespace runnel::cuda
