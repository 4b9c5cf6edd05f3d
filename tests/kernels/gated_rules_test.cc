// The rules of the gated linear family and of Mamba-1, against the equations of backend.h in
// double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/batch.h"

namespace runnel {
namespace {

using Numbers = std::vector<double>;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double mapped(Activation map, double x) {
  switch (map) {
    case Activation::kElu:
      return x > 0 ? x + 1 : std::exp(x);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSilu:
      return x * logistic(x);
    default:
      return x;
  }
}

// One mixer, as the parameters of kGated that it uses.
struct Mixer {
  std::string name;
  GatedTerms terms;
  int groups = 1;  // heads / groups heads have k, v and decay
  bool rate = false, turns = false, bonus = false;
};

std::vector<Mixer> all_mixers() {
  return {
      {.name = "Gla",
       .terms = {.decay = DecayKind::kLogSigmoid, .scale = 0.5F, .decay_least = -0.05F},
       .groups = 2},
      {.name = "RetNet", .terms = {.map = Activation::kRelu, .scale = 0.25F}, .turns = true},
      {.name = "Hgrn2",
       .terms = {.decay = DecayKind::kSigmoid, .map = Activation::kSilu, .scale = 0.5F}},
      {.name = "DeltaNet",
       .terms = {.norm = KeyNorm::kSum, .map = Activation::kElu, .delta = 1.0F}},
      {.name = "GatedDeltaNet",
       .terms = {.decay = DecayKind::kSoftplus,
                 .norm = KeyNorm::kL2,
                 .decay_of_heads = true,
                 .delta = 2.0F},
       .rate = true},
      {.name = "Kda",
       .terms = {.decay = DecayKind::kSoftplus,
                 .norm = KeyNorm::kL2,
                 .map = Activation::kSilu,
                 .delta = 1.0F},
       .rate = true},
      {.name = "Rwkv6", .terms = {.decay = DecayKind::kExponential}, .bonus = true},
  };
}

struct GatedShape {
  int heads, dk, dv;
};

// Random inputs of a network to a mixer.
struct GatedInputs {
  GatedInputs(const Mixer& mixer, const GatedShape& shape, int count)
      : mixer(mixer),
        shape(shape),
        q(count, shape.heads * shape.dk, 1),
        k(count, shape.heads / mixer.groups * shape.dk, 2),
        v(count, shape.heads / mixer.groups * shape.dv, 3),
        decay(count, decay_columns(), 1),
        rate(count, shape.heads),
        turn(count, shape.dk, 1),
        decay_rate(1, shape.heads * shape.dk),
        decay_bias(1, shape.heads * shape.dk),
        bonus(1, shape.heads * shape.dk) {
    uint32_t seed = 1;
    for (Guarded* of : {&q, &k, &v, &decay, &rate, &turn, &decay_rate, &decay_bias, &bonus}) {
      of->fill(random_floats(int64_t{of->rows()} * of->cols(), ++seed));
    }
    for (int c = 0; c < decay_rate.cols(); ++c) {
      decay_rate.at(0, c) = static_cast<float>(logistic(decay_rate.at(0, c)));
    }
  }

  int decay_columns() const {
    return shape.heads / mixer.groups * (mixer.terms.decay_of_heads ? 1 : shape.dk);
  }
  Recurrence recurrence() {
    GatedTerms terms = mixer.terms;
    if (terms.decay != DecayKind::kLogSigmoid) terms.decay_rate = decay_rate.view();
    if (terms.decay == DecayKind::kSoftplus) terms.decay_bias = decay_bias.view();
    if (mixer.bonus) terms.bonus = bonus.view();
    return {.heads = shape.heads, .dk = shape.dk, .dv = shape.dv, .terms = terms};
  }
  // The views of inputs [first, first + count).
  RecurrenceInputs views(int first, int count) {
    RecurrenceInputs views = {.q = q.view(), .k = k.view(), .v = v.view()};
    if (mixer.terms.decay != DecayKind::kConstant) views.decay = decay.view();
    if (mixer.terms.decay == DecayKind::kSigmoid) views.k = {};
    if (mixer.rate) views.rate = rate.view();
    if (mixer.turns) views.turn = turn.view();
    for (View* view : {&views.q, &views.k, &views.v, &views.decay, &views.rate, &views.turn}) {
      if (view->data != nullptr) *view = view->slice(first, count);
    }
    return views;
  }

  // The key after its map, norm and rotation.
  Numbers key(Guarded& from, int input, int first) {
    Numbers key;
    double sum = 0;
    for (int i = 0; i < shape.dk; ++i) {
      key.push_back(mapped(mixer.terms.map, from.at(input, first + i)));
      sum += mixer.terms.norm == KeyNorm::kL2 ? key[i] * key[i] : key[i];
    }
    if (mixer.terms.norm == KeyNorm::kL2) sum = std::sqrt(sum + 1e-6);
    for (double& x : key) x /= mixer.terms.norm == KeyNorm::kNone ? 1 : sum;
    const int half = shape.dk / 2;
    for (int i = 0; i < half && mixer.turns; ++i) {
      const double low = key[i];
      const double sine = turn.at(input, 2 * i);
      const double cosine = turn.at(input, 2 * i + 1);
      key[i] = low * cosine - key[i + half] * sine;
      key[i + half] = key[i + half] * cosine + low * sine;
    }
    return key;
  }

  double w(int input, int head, int channel) {
    const int group = head / mixer.groups;
    const int at = head * shape.dk + channel;
    const double rate = decay_rate.at(0, at);
    const double x = mixer.terms.decay_of_heads ? decay.at(input, group)
                                                : decay.at(input, group * shape.dk + channel);
    switch (mixer.terms.decay) {
      case DecayKind::kConstant:
        return rate;
      case DecayKind::kLogSigmoid:
        return std::exp(std::max(-softplus_of(-x) / 16, double{mixer.terms.decay_least}));
      case DecayKind::kSigmoid:
        return rate + (1 - rate) * logistic(x);
      case DecayKind::kSoftplus:
        return std::exp(-rate * softplus_of(x + decay_bias.at(0, at)));
      case DecayKind::kExponential:
        return std::exp(-std::exp(x));
    }
    return 1;
  }

  // Computes one input of a head: updates its state [dk][dv] and returns y.
  Numbers advance(Numbers& state, int input, int head) {
    const int dk = shape.dk;
    const int dv = shape.dv;
    const int group = head / mixer.groups;
    const Numbers query = key(q, input, head * dk);
    Numbers keys(dk);
    if (mixer.terms.decay != DecayKind::kSigmoid) keys = key(k, input, group * dk);
    Numbers decays;
    for (int i = 0; i < dk; ++i) {
      decays.push_back(w(input, head, i));
      if (mixer.terms.decay == DecayKind::kSigmoid) keys[i] = 1 - decays[i];
    }
    const double delta = mixer.terms.delta;
    const double beta = delta == 0 ? 1 : delta * (mixer.rate ? logistic(rate.at(input, head)) : 1);
    Numbers y(dv);
    for (int j = 0; j < dv; ++j) {
      double correction = 0;
      double bonus_sum = 0;
      for (int i = 0; i < dk; ++i) {
        correction += decays[i] * keys[i] * state[i * dv + j];
        bonus_sum += query[i] * bonus.at(0, head * dk + i) * keys[i];
      }
      const double value = v.at(input, group * dv + j);
      for (int i = 0; i < dk; ++i) {
        double& s = state[i * dv + j];
        if (mixer.bonus) y[j] += s * query[i];
        s = decays[i] * s + keys[i] * beta * value;
        if (delta != 0) s -= beta * keys[i] * correction;
        if (!mixer.bonus) y[j] += s * query[i] * mixer.terms.scale;
      }
      if (mixer.bonus) y[j] += bonus_sum * value;
    }
    return y;
  }

  Mixer mixer;
  GatedShape shape;
  Guarded q, k, v, decay, rate, turn, decay_rate, decay_bias, bonus;
};

class GatedRules : public KernelTest {
 protected:
  // A kernel of the GPU keeps states in registers if they are aligned and fit.
  void expect_matches(GatedInputs inputs, Batch batch, int slots, bool aligned = false) {
    const GatedShape shape = inputs.shape;
    const int size = shape.dk * shape.dv;
    SlotStates states(slots, shape.heads * size, aligned);
    Guarded out(batch.inputs(), shape.heads * shape.dv, 4);
    const Recurrence recurrence = inputs.recurrence();
    ASSERT_TRUE(backend().takes(recurrence).ok());
    backend().recur(batch.rows(), batch.control(), recurrence, inputs.views(0, batch.inputs()),
                    states.states(), out.view());
    out.expect_guards("recur: out");
    states.expect_rest_untouched(batch);
    const double tolerance = 4e-6 * (10 + shape.dk);
    for (size_t row = 0; row < batch.slot.size(); ++row) {
      if (batch.slot[row] < 0) continue;
      const Numbers initial = states.initial(batch.slot[row]);
      Numbers all;
      for (int head = 0; head < shape.heads; ++head) {
        Numbers held(initial.begin() + head * size, initial.begin() + (head + 1) * size);
        for (int input = batch.first[row]; input < batch.first[row + 1]; ++input) {
          const Numbers y = inputs.advance(held, input, head);
          for (int j = 0; j < shape.dv; ++j) {
            ASSERT_NEAR(out.at(input, head * shape.dv + j), y[j], tolerance * (1 + std::abs(y[j])))
                << shape.dk << " x " << shape.dv << " row " << row << " head " << head;
          }
        }
        all.insert(all.end(), held.begin(), held.end());
      }
      states.expect_near(batch.slot[row], all, tolerance);
    }
  }
};

TEST_P(GatedRules, MatchTheirEquationsOnShapesThatBreak) {
  for (const Mixer& mixer : all_mixers()) {
    SCOPED_TRACE(mixer.name);
    for (const int dk : {2, 16, 18, 66, 128}) {
      for (const int dv : {1, 3, 16, 33, 64, 100}) {
        expect_matches(GatedInputs(mixer, {2, dk, dv}, 7), Batch({2, -1, 0, 1}, {1, 2, 3, 1}), 4);
      }
    }
  }
}

TEST_P(GatedRules, MatchTheirEquationsWithAlignedStates) {
  const GatedShape shapes[] = {{2, 16, 16}, {2, 64, 4}, {2, 20, 100}, {2, 128, 64}, {2, 200, 68}};
  for (const Mixer& mixer : all_mixers()) {
    SCOPED_TRACE(mixer.name);
    for (const GatedShape& shape : shapes) {
      expect_matches(GatedInputs(mixer, shape, 5), Batch({2, -1, 0}, {1, 2, 2}), 3, true);
    }
  }
}

// Heads of published models with 340 M parameters: GLA's, and twice the size of Gated DeltaNet's.
TEST_P(GatedRules, MatchTheirEquationsOnLargeHeads) {
  for (const int mixer : {0, 4}) {
    SCOPED_TRACE(all_mixers()[mixer].name);
    expect_matches(GatedInputs(all_mixers()[mixer], {2, 128, 256}, 2), Batch({0}, {2}), 1, true);
    expect_matches(GatedInputs(all_mixers()[mixer], {2, 256, 512}, 1), Batch({0}, {1}), 1, true);
    expect_matches(GatedInputs(all_mixers()[mixer], {2, 260, 64}, 1), Batch({0}, {1}), 1, true);
  }
}

TEST_P(GatedRules, InputsFarOutOfRangeSaturate) {
  for (const Mixer& mixer : all_mixers()) {
    SCOPED_TRACE(mixer.name);
    for (const float size : {-1e30F, 1e30F}) {
      GatedInputs inputs(mixer, {1 * mixer.groups, 20, 20}, 1);
      inputs.decay.fill(std::vector<float>(inputs.decay.cols(), size));
      inputs.rate.fill(std::vector<float>(inputs.rate.cols(), size));
      expect_matches(inputs, Batch({0}, {1}), 1);
    }
  }
}

// A prompt in one call gives the same bits as stepping through it.
TEST_P(GatedRules, BitsDependOnlyOnTheRow) {
  const int length = 9;
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  for (const Mixer& mixer : all_mixers()) {
    SCOPED_TRACE(mixer.name);
    for (const GatedShape& shape : {GatedShape{4, 18, 33}, GatedShape{4, 16, 68}}) {
      const int size = shape.heads * shape.dk * shape.dv;
      GatedInputs inputs(mixer, shape, 2 * length);
      SlotStates of_scan(2, size, true);
      SlotStates of_steps(2, size, true);
      Guarded all(2 * length, shape.heads * shape.dv);
      Guarded each(2 * length, shape.heads * shape.dv);
      Batch both({1, 0}, {length, length});
      backend().recur(both.rows(), both.control(), inputs.recurrence(), inputs.views(0, 2 * length),
                      of_scan.states(), all.view());
      for (int input = 0; input < 2 * length; ++input) {
        Batch one({input < length ? 1 : 0}, {1});
        single->recur(one.rows(), one.control(), inputs.recurrence(), inputs.views(input, 1),
                      of_steps.states(), each.view().slice(input, 1));
      }
      EXPECT_TRUE(same_bits(all.values(), each.values()));
      EXPECT_TRUE(same_bits(of_scan.memory.values(), of_steps.memory.values()));
    }
  }
}

// The first head of q and k serves heads 0 and 2, the second one heads 1 and 3.
TEST_P(GatedRules, TiledKeysServeEveryOtherHead) {
  const int dk = 18, dv = 5, count = 3;
  GatedInputs inputs(all_mixers()[4], {4, dk, dv}, count);
  for (int input = 0; input < count; ++input) {
    for (int column = 0; column < 2 * dk; ++column) {
      inputs.q.at(input, 2 * dk + column) = inputs.q.at(input, column);
      inputs.k.at(input, 2 * dk + column) = inputs.k.at(input, column);
    }
  }
  RecurrenceInputs views = inputs.views(0, count);
  Recurrence recurrence = inputs.recurrence();
  Batch batch({0}, {count});
  SlotStates of_all(1, 4 * dk * dv), of_tiles(1, 4 * dk * dv);
  Guarded all(count, 4 * dv), tiles(count, 4 * dv);
  backend().recur(batch.rows(), batch.control(), recurrence, views, of_all.states(), all.view());
  std::get<GatedTerms>(recurrence.terms).tiled_keys = true;
  views.q = views.q.columns(0, 2 * dk);
  views.k = views.k.columns(0, 2 * dk);
  backend().recur(batch.rows(), batch.control(), recurrence, views, of_tiles.states(),
                  tiles.view());
  EXPECT_TRUE(same_bits(tiles.values(), all.values()));
  EXPECT_TRUE(same_bits(of_tiles.memory.values(), of_all.memory.values()));
}

// Every element of S has its own decay rate.
class Mamba1Rule : public KernelTest {
 protected:
  void expect_matches(int heads, int dk, int dv) {
    const int columns = heads * dv;
    Batch batch({1, 0}, {3, 2});
    Guarded q(5, dk), k(5, dk), v(5, columns), decay(5, columns, 1), gate(5, columns),
        out(5, columns);
    Guarded rate(heads * dk, dv), bias(1, columns), skip(1, columns);
    uint32_t seed = 1;
    for (Guarded* of : {&q, &k, &v, &decay, &gate, &rate, &bias, &skip}) {
      of->fill(random_floats(int64_t{of->rows()} * of->cols(), ++seed));
    }
    const Mamba1Terms terms = {.dt_rate = rate.view(), .dt_bias = bias.view(), .skip = skip.view()};
    for (int i = 0; i < heads * dk; ++i) {
      for (int j = 0; j < dv; ++j) rate.at(i, j) = std::exp(rate.at(i, j));
    }
    SlotStates states(2, columns * dk);
    backend().recur(
        batch.rows(), batch.control(),
        {.heads = heads, .key_heads = 1, .dk = dk, .dv = dv, .terms = terms},
        {.q = q.view(), .k = k.view(), .v = v.view(), .gate = gate.view(), .decay = decay.view()},
        states.states(), out.view());
    out.expect_guards("recur: out");
    states.expect_rest_untouched(batch);
    for (int row = 0; row < 2; ++row) {
      Numbers state = states.initial(batch.slot[row]);
      for (int input = batch.first[row]; input < batch.first[row + 1]; ++input) {
        for (int c = 0; c < columns; ++c) {
          const double dt = softplus_of(double{decay.at(input, c)} + bias.at(0, c));
          double y = double{skip.at(0, c)} * v.at(input, c);
          for (int i = 0; i < dk; ++i) {
            const int at = (c / dv * dk + i) * dv + c % dv;
            state[at] = std::exp(-dt * rate.at(c / dv * dk + i, c % dv)) * state[at] +
                        k.at(input, i) * dt * v.at(input, c);
            y += state[at] * q.at(input, i);
          }
          y *= gate.at(input, c) * logistic(gate.at(input, c));
          ASSERT_NEAR(out.at(input, c), y, 1e-5 * (1 + std::abs(y))) << dv << " " << c;
        }
      }
      states.expect_near(batch.slot[row], state, 1e-5);
    }
  }
};

TEST_P(Mamba1Rule, MatchesItsEquations) {
  for (const int dk : {5, 16, 19}) {
    for (const int dv : {1, 3, 16, 33, 100}) expect_matches(2, dk, dv);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GatedRules, testing::ValuesIn(all_backends()), setup_name);
INSTANTIATE_TEST_SUITE_P(Backends, Mamba1Rule, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
