// Samples a value from each row of a head's output, and computes its log-probability. A block
// samples one row of a categorical head, or a warp samples one row of a mixture. Long sums are
// integer sums or use a fixed tree, so that results do not depend on the order of the threads.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rank.h"
#include "kernels/cuda/running_sums.h"
#include "kernels/cuda/stage.h"
#include "kernels/device.h"
#include "kernels/mixture.h"
#include "kernels/philox.h"

namespace runnel::cuda {

// ---- rows ---------------------------------------------------------------------------------------

inline constexpr int kHeadThreads = 256;

// A row of the head's output, from which the next value of a slot is chosen. In this step the slot
// has consumed `inputs` values.
struct RowJob {
  const float* head = nullptr;
  int row = 0;  // the row of the batch; -1: nothing is sampled
  int inputs = 0;
  Control* control = nullptr;
  SampledTo to = {};
  RecentRing recent = {};  // the slot's recent values, if the head is categorical
};

RUNNEL_DEVICE inline Uniforms uniforms_of(const Control& control, int64_t position) {
  const PhiloxCounter words = philox_words(control.seed, position, control.stream, 0);
  return {philox_uniform(words.word[0]), philox_uniform(words.word[1])};
}

RUNNEL_DEVICE constexpr int tops_wanted(const Control& control) {
  return control.top_log_probs < kMaxTopLogProbs ? control.top_log_probs : kMaxTopLogProbs;
}

// Writes a sampled value to the results and to the slot's control, without its log-probability.
// `held` is a copy of the control from before the sampling.
RUNNEL_DEVICE inline void write_down(const RowJob& job, const Control& held, int32_t value) {
  const int64_t position = held.position + job.inputs;
  job.to.rows->row = job.row;
  job.to.rows->value = value;
  job.to.rows->position = position;
  job.control->position = position;
  job.control->pending = value;
  job.control->remaining = held.remaining - 1;
}

// ---- mixture of logistics -----------------------------------------------------------------------

inline constexpr int kMixtureRows = kHeadThreads / kWarp;  // rows that a block works on at a time

// The shared memory of a row, in units of 8 bytes: a term and a weight for each component, the
// largest key of each lane, the sampled value, and the likelihoods of all values.
RUNNEL_DEVICE constexpr int64_t mixture_row_words(int components) {
  return 2 * int64_t{components} + kWarp + 1 + Mixture::kValues / 2;
}

// Each warp works on one row. Lane i works on the components i, i + 32, ... If the likelihoods of
// all values are needed, it also works on the values i, i + 32, ...
template <typename Block>
class MixtureRows {
 public:
  RUNNEL_DEVICE MixtureRows(Block& block, int components)
      : block_(block), components_(components) {}

  // Samples a value for each warp whose jobs[t] has a row. Then every lane of the warp calls
  // chosen(lane, job, value, last). If `last` is true the row freezes.
  template <typename Jobs, typename Chosen>
  RUNNEL_DEVICE void draw(Jobs& jobs, const Chosen& chosen) {
    typename Block::template Each<Control> held;
    block_.each([&](int t) {
      if (jobs[t].row < 0) return;
      held[t] = *jobs[t].control;
      prepare(t, jobs[t].head, held[t]);
    });
    block_.each([&](int t) {
      if (t % kWarp != 0) return;
      bests(t)[kWarp] = static_cast<uint64_t>(kNoValue);
      if (jobs[t].row >= 0) choose(t, jobs[t], held[t]);
    });
    block_.each([&](int t) {
      if (jobs[t].row >= 0) chosen(t % kWarp, jobs[t], result(t), held[t].remaining <= 1);
    });
  }

  // Writes the log-probabilities of the values that draw() has sampled. Skips rows without a
  // sampled value. Warps do not depend on one another here, so this function may be the work of
  // meet() (launch.h).
  template <typename Jobs>
  RUNNEL_DEVICE void weigh(Jobs& jobs) {
    typename Block::template Each<Wanted> wanted;
    block_.each([&](int t) {
      if (result(t) == kNoValue) jobs[t].row = -1;
      if (jobs[t].row < 0) return;
      wanted[t] = {all_values(*jobs[t].control), tops_wanted(*jobs[t].control)};
      if (!wanted[t].all_values) weigh(t, jobs[t].head, result(t));
    });
    block_.each([&](int t) {
      if (jobs[t].row < 0 || t % kWarp != 0) return;
      Sampled& out = *jobs[t].to.rows;
      out.log_prob =
          wanted[t].all_values ? likelihoods(t)[result(t)] : log_prob(t, jobs[t].head, result(t));
      out.top_count = wanted[t].tops;
    });
    top(jobs, wanted);
  }

  // Computes log p(target(w)) under head(w) for each warp w below `count`, and calls
  // found(w, log_prob) with it.
  template <typename Row, typename Target, typename Found>
  RUNNEL_DEVICE void score(int count, const Row& head, const Target& target, const Found& found) {
    block_.each([&](int t) {
      if (t / kWarp < count) weigh(t, head(t / kWarp), target(t / kWarp));
    });
    block_.each([&](int t) {
      const int w = t / kWarp;
      if (w < count && t % kWarp == 0) found(w, log_prob(t, head(w), target(w)));
    });
  }

 private:
  RUNNEL_DEVICE double* terms(int t) const {
    return block_.template shared<double>() + t / kWarp * mixture_row_words(components_);
  }
  RUNNEL_DEVICE double* weights(int t) const { return terms(t) + components_; }
  RUNNEL_DEVICE uint64_t* bests(int t) const {
    return reinterpret_cast<uint64_t*>(terms(t) + 2 * components_);
  }
  RUNNEL_DEVICE float* likelihoods(int t) const {
    return reinterpret_cast<float*>(bests(t) + kWarp + 1);
  }
  RUNNEL_DEVICE int32_t result(int t) const { return static_cast<int32_t>(bests(t)[kWarp]); }

  static constexpr int32_t kNoValue = -1;  // the result of a row that does not sample

  struct Wanted {
    bool all_values = false;
    int tops = 0;
  };
  RUNNEL_DEVICE static bool all_values(const Control& control) {
    return control.sampling.greedy || control.top_log_probs > 0;
  }

  // Computes a lane's part of the data for sampling: the weights of the components at the given
  // temperature, unless sampling is greedy, and the likelihoods of values if all_values().
  RUNNEL_DEVICE void prepare(int t, const float* head, const Control& held) const {
    const Mixture mixture(head, components_);
    for (int i = t % kWarp; i < components_ && !held.sampling.greedy; i += kWarp) {
      terms(t)[i] = mixture.tempered_weight(i, held.sampling.temperature);
    }
    if (!all_values(held)) return;
    for (int value = t % kWarp; value < Mixture::kValues; value += kWarp) {
      likelihoods(t)[value] = mixture.log_prob(value);
    }
    bests(t)[t % kWarp] = best_below(t, UINT64_MAX);
  }
  RUNNEL_DEVICE void choose(int t, const RowJob& job, const Control& held) const {
    int32_t value = 0;
    if (held.sampling.greedy) {
      value = ranked_value(best(t));
    } else {
      const Mixture mixture(job.head, components_);
      const Uniforms uniforms = uniforms_of(held, held.position + job.inputs);
      const int32_t component = mixture.choose(uniforms.choice, [&](int i) { return terms(t)[i]; });
      value = mixture.draw(component, held.sampling.temperature, uniforms.noise);
    }
    bests(t)[kWarp] = static_cast<uint64_t>(value);
    write_down(job, held, value);
  }

  // Computes the terms and weights of a lane's components, from which log_prob() computes
  // log p(value).
  RUNNEL_DEVICE void weigh(int t, const float* head, int32_t value) const {
    const Mixture mixture(head, components_);
    for (int i = t % kWarp; i < components_; i += kWarp) {
      const Mixture::Component at = mixture.component(i);
      terms(t)[i] = at.weight * Mixture::mass(at, value);
      weights(t)[i] = at.weight;
    }
  }
  RUNNEL_DEVICE float log_prob(int t, const float* head, int32_t value) const {
    double sum = 0.0;
    double weight = 0.0;
    for (int i = 0; i < components_; ++i) {
      sum += terms(t)[i];
      weight += weights(t)[i];
    }
    return Mixture(head, components_).log_prob_of(value, sum, weight);
  }

  // best_below(): the largest key below `limit` among a lane's values. best(): the largest of the
  // keys that the warp's lanes have stored in bests().
  RUNNEL_DEVICE uint64_t best_below(int t, uint64_t limit) const {
    uint64_t most = 0;
    for (int32_t value = t % kWarp; value < Mixture::kValues; value += kWarp) {
      const uint64_t key = rank_key(likelihoods(t)[value], value);
      if (key < limit && key > most) most = key;
    }
    return most;
  }
  RUNNEL_DEVICE uint64_t best(int t) const {
    uint64_t most = 0;
    for (int i = 0; i < kWarp; ++i) most = bests(t)[i] > most ? bests(t)[i] : most;
    return most;
  }

  // Writes the most likely values of the rows whose calls request them. prepare() has already found
  // the most likely one.
  template <typename Jobs, typename EachWanted>
  RUNNEL_DEVICE void top(Jobs& jobs, EachWanted& wanted) {
    const auto wants = [&](int t, int i) { return jobs[t].row >= 0 && i < wanted[t].tops; };
    for (int i = 0; i < kMaxTopLogProbs; ++i) {
      typename Block::template Each<uint64_t> key;
      block_.each([&](int t) {
        if (!wants(t, i)) return;
        key[t] = best(t);
        const int32_t value = ranked_value(key[t]);
        if (t % kWarp == 0) jobs[t].to.top[i] = {value, likelihoods(t)[value]};
      });
      block_.each([&](int t) {
        if (wants(t, i + 1)) bests(t)[t % kWarp] = best_below(t, key[t]);
      });
    }
  }

  Block& block_;
  const int components_;
};

// ---- categorical --------------------------------------------------------------------------------

inline constexpr int kDigits = 256;
inline constexpr int64_t kCategoricalSharedBytes = running_sum_words(kDigits) * 8;

// The weight of a value is exp((logit - largest logit) / temperature), rounded to an integer in
// units of 2^-40. Sums over up to 2^20 values fit in 64 bits, so they are exact in any order.
template <typename Block>
class CategoricalRow {
 public:
  RUNNEL_DEVICE CategoricalRow(Block& block, const float* logits, int values)
      : block_(block),
        logits_(logits),
        values_(values),
        table_(block, block.template shared<uint64_t>()) {
    look();
  }

  // Finds the largest logit. Call it again after the logits have changed.
  RUNNEL_DEVICE void look() { most_ = logit(mode()); }

  // Must be called before log_prob().
  RUNNEL_DEVICE void sum_up() {
    typename Block::template Each<double> part;
    block_.each([&](int t) {
      double sum = 0.0;
      for_each({t, values_}, Block::kThreads,
               [&](int32_t, float logit) { sum += exp_nonpositive(logit - most_); });
      part[t] = sum;
    });
    log_sum_ = log_of(block_.sum(part));
  }

  RUNNEL_DEVICE float log_prob(int32_t value) const {
    return static_cast<float>(static_cast<double>(logit(value)) - most_ - log_sum_);
  }

  RUNNEL_DEVICE int32_t mode() { return ranked_value(next_rank(UINT64_MAX)); }

  // Writes the `count` most likely values to `top`, the most likely first. Returns how many there
  // are.
  RUNNEL_DEVICE int top(int count, TopLogProb* top) {
    uint64_t key = UINT64_MAX;
    const int found = count < values_ ? count : values_;
    for (int i = 0; i < found; ++i) {
      key = next_rank(key);
      const int32_t value = ranked_value(key);
      block_.each([&](int t) {
        if (t == 0) top[i] = {value, log_prob(value)};
      });
    }
    return found;
  }

  // The first value whose cumulative share, in the order of values, exceeds u.
  RUNNEL_DEVICE int32_t sample(const Sampling& sampling, Uniforms uniforms) {
    if (sampling.greedy) return mode();
    const float inverse = 1.0F / sampling.temperature;
    scale_ = inverse < 1e30F ? inverse : 1e30F;
    const Kept kept = filter(sampling);
    const auto amount = [&](int32_t value, float logit) {
      return keeps(kept, value, logit) ? mass(logit) : 0;
    };
    // The total is not 0: the most likely value is always kept, and its weight is 1.
    const double target = uniforms.choice * static_cast<double>(add_up({0, values_}, amount));
    return first_enough(0, amount, [&](uint64_t sum) { return static_cast<double>(sum) > target; });
  }

 private:
  static_assert(Block::kThreads == kDigits, "a thread to a digit, and to a share of the values");
  static constexpr int kAtOnce = 4;  // logits that a thread loads at once

  // The values from `first` up to, but not including, `last`.
  struct Range {
    int32_t first, last;

    RUNNEL_DEVICE int32_t size() const { return last - first; }
    // Part `index` of kDigits parts. All parts but the last ones have the same size.
    RUNNEL_DEVICE Range part(int index) const {
      const int32_t each = (size() + kDigits - 1) / kDigits;
      const int32_t from = first + index * each;
      return {from < last ? from : last, from + each < last ? from + each : last};
    }
  };

  // The values that the filters have kept. A value is kept if its weight is at least `least`, and
  // its logit is above the logit of `key`, or is that logit and the value is at most `last_tie`.
  struct Kept {
    uint32_t key = 0;
    int32_t last_tie = INT32_MAX;
    float least = 0.0F;
  };

  RUNNEL_DEVICE float logit(int32_t value) const { return finite(logits_[value]); }
  RUNNEL_DEVICE float weight(float logit) const {
    return exp_nonpositive((logit - most_) * scale_);
  }
  RUNNEL_DEVICE uint64_t mass(float logit) const {
    return static_cast<uint64_t>(static_cast<double>(weight(logit)) * 0x1p40 + 0.5);
  }
  RUNNEL_DEVICE bool keeps(Kept kept, int32_t value, float logit) const {
    const uint32_t key = order_key(logit);
    if (key < kept.key || (key == kept.key && value > kept.last_tie)) return false;
    return kept.least <= 0.0F || weight(logit) >= kept.least;
  }

  // Calls use(value, logit) for the values of a range that are `step` apart. Several logits are
  // loaded before the first one is used, so that a thread waits for them once.
  template <typename Use>
  RUNNEL_DEVICE void for_each(Range range, int step, const Use& use) const {
    for (int32_t first = range.first; first < range.last; first += kAtOnce * step) {
      float logits[kAtOnce];
      RUNNEL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int32_t value = first + i * step;
        logits[i] = value < range.last ? logits_[value] : 0.0F;
      }
      RUNNEL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int32_t value = first + i * step;
        if (value < range.last) use(value, finite(logits[i]));
      }
    }
  }

  // The largest rank_key() of all values that is below `limit`.
  RUNNEL_DEVICE uint64_t next_rank(uint64_t limit) {
    typename Block::template Each<uint64_t> best;
    block_.each([&](int t) {
      uint64_t largest = 0;
      for_each({t, values_}, Block::kThreads, [&](int32_t value, float logit) {
        const uint64_t key = rank_key(logit, value);
        if (key < limit && key > largest) largest = key;
      });
      best[t] = largest;
    });
    return block_.largest(best);
  }

  // Fills the table with the sums of amount(value, logit) over the parts of a range. Returns their
  // total.
  template <typename Amount>
  RUNNEL_DEVICE uint64_t add_up(Range range, const Amount& amount) {
    typename Block::template Each<uint64_t> sums;
    block_.each([&](int t) {
      uint64_t sum = 0;
      for_each(range.part(t), 1, [&](int32_t value, float logit) { sum += amount(value, logit); });
      *table_.at(t) = sums[t] = sum;
    });
    return block_.sum(sums);
  }

  // The first value, in the order of values, for which enough() holds for the sum of `before` and
  // of all amounts up to its own; otherwise the last value with an amount above 0. add_up()
  // of all values must have filled the table.
  template <typename Amount, typename Enough>
  RUNNEL_DEVICE int32_t first_enough(uint64_t before, const Amount& amount, const Enough& enough) {
    Range range = {0, values_};
    while (true) {
      const auto place = table_.find(before, enough);
      range = range.part(place.index);
      before = place.before;
      if (range.size() <= 1) return range.first;
      add_up(range, amount);
    }
  }

  // Keeps only the most likely values: the fewest whose amounts add up to the target. It is a radix
  // selection with four passes of eight key bits (a digit). A pass sums the amounts for each digit
  // and finds the digit at which the total, from the highest key down, reaches the target. The next
  // pass looks only at keys with this digit.
  template <typename Amount>
  RUNNEL_DEVICE Kept narrow(Kept kept, double target, const Amount& amount) {
    const auto enough = [&](uint64_t sum) { return static_cast<double>(sum) >= target; };
    uint32_t prefix = 0;
    uint64_t above = 0;  // the amounts of all values whose keys are above the prefix
    for (int shift = 24; shift >= 0; shift -= 8) {
      block_.phase([&](int t) { *table_.at(t) = 0; });
      block_.phase([&](int t) {
        for_each({t, values_}, Block::kThreads, [&](int32_t value, float logit) {
          const uint32_t key = order_key(logit);
          if (((uint64_t{key} ^ prefix) >> (shift + 8)) != 0) return;
          if (!keeps(kept, value, logit)) return;
          const int digit = static_cast<int>(key >> shift) & (kDigits - 1);
          block_.add(table_.at(kDigits - 1 - digit), amount(logit));  // the highest one first
        });
      });
      const auto place = table_.find(above, enough);
      prefix |= static_cast<uint32_t>(kDigits - 1 - place.index) << shift;
      above = place.before;
    }
    // Several values may have this key. Keeps the lowest of them, until the total reaches the
    // target.
    const auto of_ties = [&](int32_t value, float logit) {
      return order_key(logit) == prefix && keeps(kept, value, logit) ? amount(logit) : 0;
    };
    add_up({0, values_}, of_ties);
    const int32_t last = first_enough(above, of_ties, enough);
    return {.key = prefix, .last_tie = last, .least = kept.least};
  }

  RUNNEL_DEVICE Kept filter(const Sampling& sampling) {
    Kept kept;
    if (sampling.top_k > 0 && sampling.top_k < values_) {
      kept = narrow(kept, sampling.top_k, [](float) { return uint64_t{1}; });
    }
    if (sampling.top_p < 1.0F) {
      const auto amount = [&](int32_t value, float logit) {
        return keeps(kept, value, logit) ? mass(logit) : 0;
      };
      const double target = sampling.top_p * static_cast<double>(add_up({0, values_}, amount));
      kept = narrow(kept, target, [this](float logit) { return mass(logit); });
    }
    // The most likely value weighs exactly 1, so it is always kept.
    kept.least = sampling.min_p < 1.0F ? sampling.min_p : 1.0F;
    return kept;
  }

  Block& block_;
  const float* logits_;
  int values_;
  RunningSums<Block> table_;
  float most_ = 0.0F;     // the largest logit
  float scale_ = 1.0F;    // 1 / temperature
  double log_sum_ = 0.0;  // log of the sum of exp(logit - most); sum_up() sets it
};

// A RowPenalizer for rows without penalties. PenalizedRow (penalize.h) changes the logits of a row
// in apply() and undoes the change in restore().
struct NoPenalties {
  static constexpr bool kAny = false;
};

// Samples a value from one row with all threads of the block, then computes its log-probability.
template <typename Block, typename Chosen, typename RowPenalizer = NoPenalties>
RUNNEL_DEVICE void sample_categorical(Block& block, int values, const RowJob& job,
                                      const Chosen& chosen, RowPenalizer penalties = {}) {
  const Control held = *job.control;
  const int64_t position = held.position + job.inputs;
  if constexpr (RowPenalizer::kAny) penalties.apply(position);
  CategoricalRow<Block> row(block, job.head, values);
  const int32_t value = row.sample(held.sampling, uniforms_of(held, position));
  // All threads have read the control by now, because phases have passed since then.
  block.each([&](int t) {
    if (t == 0) write_down(job, held, value);
    if (t == kWarp) job.recent.note(position, value);  // not warp 0, which writes the results
    chosen(t, job, value, held.remaining <= 1);
  });
  if constexpr (RowPenalizer::kAny) {
    penalties.restore();
    row.look();
  }
  row.sum_up();
  const int wanted = tops_wanted(held);
  const int count = wanted > 0 ? row.top(wanted, job.to.top) : 0;
  block.each([&](int t) {
    if (t != 0) return;
    job.to.rows->log_prob = row.log_prob(value);
    job.to.rows->top_count = count;
  });
}

// ---- kernels ------------------------------------------------------------------------------------

RUNNEL_DEVICE constexpr int64_t head_shared_bytes(const Head& kind) {
  return kind.kind == HeadKind::kCategorical
             ? kCategoricalSharedBytes
             : kMixtureRows * mixture_row_words(kind.components) * 8;
}

// The number of rows that a block works on at a time.
RUNNEL_DEVICE constexpr int head_rows_at_once(const Head& kind) {
  return kind.kind == HeadKind::kCategorical ? 1 : kMixtureRows;
}

struct SampleArgs {
  Rows rows;
  Kept head_row, pending;  // Outputs
  Head kind;
  const float* head;
  int64_t head_stride;
  int head_rows;
  Control* control;
  SampledTo to;
  Recent recent;
};

// The part of a batch for which one block ends a step: at most `count` rows.
template <typename Block>
class SampleRows {
 public:
  RUNNEL_DEVICE SampleRows(Block& block, const SampleArgs& args, int count)
      : block_(block),
        args_(args),
        first_(static_cast<int>(block.index()) * count),
        count_(count) {}

  // Ends the step for the rows that do not sample: their positions advance by their inputs, and
  // they get the pending value that Outputs gives them.
  RUNNEL_DEVICE void advance() {
    note_inputs();
    // The warps that follow write the slots that these threads read, so they must wait.
    block_.phase([&](int t) {
      const int row = first_ + t;
      if (t >= count_ || row >= args_.rows.count) return;
      args_.head_row.keep(row);
      args_.pending.keep(row);
      if (samples(row)) return;
      args_.to.rows[row].row = -1;
      const int32_t slot = args_.rows.slot[row];
      if (slot < 0) return;
      Control& control = args_.control[slot];
      control.position += inputs(row);
      control.pending = args_.pending.from[row];
      if (args_.recent.room > 0) args_.recent.of(slot).note(control.position, control.pending);
    });
  }

  RUNNEL_DEVICE RowJob job(int i) const {
    const bool wanted = first_ + i < args_.rows.count && samples(first_ + i);
    const int row = wanted ? first_ + i : first_;
    const int32_t head_row = wanted ? args_.head_row.from[row] : 0;
    const int32_t slot = wanted ? args_.rows.slot[row] : 0;
    block_.require(!wanted || head_row < args_.head_rows, "sample: a row of the head");
    return RowJob{.head = args_.head + head_row * args_.head_stride,
                  .row = wanted ? row : -1,
                  .inputs = inputs(row),
                  .control = args_.control + slot,
                  .to = args_.to.from(row),
                  .recent = args_.recent.of(slot)};
  }

  // A function that samplers take as `chosen`. It freezes a row that has sampled its last value.
  RUNNEL_DEVICE auto freeze() const {
    return [this](int thread, const RowJob& of, int32_t, bool last) {
      if (thread == 0 && last) args_.rows.slot[of.row] = -1;
    };
  }

 private:
  RUNNEL_DEVICE int inputs(int row) const {
    return args_.rows.first[row + 1] - args_.rows.first[row];
  }
  RUNNEL_DEVICE bool samples(int row) const {
    return args_.rows.slot[row] >= 0 && args_.head_row.from[row] >= 0;
  }

  // Adds the inputs of a row to the slot's recent values. A block has only one row if recent values
  // are kept. If there are more inputs than entries in the ring, only the last inputs are written,
  // so no two threads write the same entry.
  RUNNEL_DEVICE void note_inputs() {
    const int row = first_;
    if (args_.recent.room == 0 || args_.recent.inputs == nullptr) return;
    if (row >= args_.rows.count || samples(row)) return;
    const int32_t slot = args_.rows.slot[row];
    if (slot < 0) return;
    const RecentRing ring = args_.recent.of(slot);
    block_.phase([&](int t) {
      const int64_t position = args_.control[slot].position;
      const int count = inputs(row);
      RUNNEL_ROLL
      for (int i = (count > ring.room ? count - ring.room : 0) + t; i < count;
           i += Block::kThreads) {
        const int32_t value = args_.recent.inputs[args_.rows.first[row] + i];
        if (value >= 0) ring.note(position + i, value);
      }
    });
  }

  Block& block_;
  const SampleArgs& args_;
  const int first_, count_;
};

// The kernel that ends a step.
struct SampleKernel {
  using Args = SampleArgs;
  static constexpr int kThreads = kHeadThreads;
  static constexpr int kResident = 1;

  static constexpr Launch launch(const Args& args) {
    const int rows = head_rows_at_once(args.kind);
    return {.blocks = (args.rows.count + rows - 1) / rows,
            .shared_bytes = head_shared_bytes(args.kind)};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    SampleRows<Block> batch(block, args, head_rows_at_once(args.kind));
    batch.advance();
    const auto chosen = batch.freeze();
    if (args.kind.kind == HeadKind::kCategorical) {
      if (const RowJob row = batch.job(0); row.row >= 0) {
        sample_categorical(block, args.kind.values, row, chosen);
      }
      return;
    }
    typename Block::template Each<RowJob> jobs;  // made first, because chosen() freezes rows
    block.each([&](int t) { jobs[t] = batch.job(t / kWarp); });
    MixtureRows<Block> rows(block, args.kind.components);
    rows.draw(jobs, chosen);
    rows.weigh(jobs);
  }
};

struct ScoreArgs {
  Head kind;
  const float* head;
  int64_t head_stride;
  const int32_t* targets;
  float* log_probs;
  int rows;
};

struct ScoreKernel {
  using Args = ScoreArgs;
  static constexpr int kThreads = kHeadThreads;
  static constexpr int kResident = 2;

  static constexpr Launch launch(const Args& args) {
    const int rows = head_rows_at_once(args.kind);
    return {.blocks = (args.rows + rows - 1) / rows, .shared_bytes = head_shared_bytes(args.kind)};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int64_t first = block.index() * head_rows_at_once(args.kind);
    const auto head = [&](int i) { return args.head + (first + i) * args.head_stride; };
    const auto target = [&](int i) {
      const int32_t value = args.targets[first + i];
      block.require(value >= 0 && value < args.kind.values, "score: a target is one of the values");
      return value;
    };
    const auto found = [&](int i, float log_prob) { args.log_probs[first + i] = log_prob; };
    if (args.kind.kind != HeadKind::kCategorical) {
      const int64_t left = args.rows - first;
      const int count = left < kMixtureRows ? static_cast<int>(left) : kMixtureRows;
      MixtureRows<Block>(block, args.kind.components).score(count, head, target, found);
      return;
    }
    CategoricalRow<Block> row(block, head(0), args.kind.values);
    row.sum_up();
    block.each([&](int t) {
      if (t == 0) found(0, row.log_prob(target(0)));
    });
  }
};

}  // namespace runnel::cuda
