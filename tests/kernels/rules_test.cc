// Compares the rules of the recurrence, except linear attention's (recur_test.cc), with the
// equations of backend.h in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/batch.h"

namespace runnel {
namespace {

using Numbers = std::vector<double>;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

Numbers columns_of(Guarded& from, int row, int begin, int count) {
  return {from.row(row) + begin, from.row(row) + begin + count};
}

// The terms of the core recurrence for one input of a head, and the rest of y.
struct Terms {
  Numbers w, a, b, k, v, q, y;
};

// S = diag(w) S + b (a^T S) + k v^T; y += S^T q.
Numbers advance(Numbers& state, const Terms& at) {
  const size_t dk = at.k.size();
  const size_t dv = at.v.size();
  Numbers y = at.y;
  for (size_t j = 0; j < dv; ++j) {
    double correction = 0;
    for (size_t i = 0; i < dk; ++i) correction += at.a[i] * state[i * dv + j];
    for (size_t i = 0; i < dk; ++i) {
      double& s = state[i * dv + j];
      s = at.w[i] * s + at.b[i] * correction + at.k[i] * at.v[j];
      y[j] += s * at.q[i];
    }
  }
  return y;
}

struct Shape {
  int heads, key_heads, dk, dv;
  int keys() const { return key_heads * dk; }
  int values() const { return heads * dv; }
};

// Random inputs of a network to one rule.
struct Inputs {
  Inputs(Rule rule, const Shape& shape, int count)
      : rule(rule),
        shape(shape),
        q(count, shape.keys(), 1),
        k(count, shape.keys(), 2),
        v(count, shape.values(), 3),
        decay(count, rule == Rule::kRwkv7 ? shape.keys() : shape.heads, 1),
        rate(count, shape.keys()),
        first(count, shape.values(), 2),
        mix(count, shape.values(), 3),
        bonus(count, shape.values(), 1),
        k_k(1, shape.keys()),
        k_a(1, shape.keys()),
        r_k(1, shape.keys()),
        dt_rate(1, shape.heads),
        dt_bias(1, shape.heads),
        skip(1, shape.heads) {
    uint32_t seed = 1;
    for (Guarded* of :
         {&q, &k, &v, &decay, &rate, &first, &mix, &k_k, &k_a, &r_k, &dt_rate, &dt_bias, &skip}) {
      of->fill(random_floats(int64_t{of->rows()} * of->cols(), ++seed));
    }
    for (int h = 0; h < shape.heads; ++h) dt_rate.at(0, h) = std::exp(dt_rate.at(0, h));
  }

  Recurrence recurrence() {
    Recurrence recurrence = {.heads = shape.heads, .dk = shape.dk, .dv = shape.dv};
    if (rule == Rule::kRwkv7) {
      recurrence.terms =
          Rwkv7Terms{.eps = eps, .k_k = k_k.view(), .k_a = k_a.view(), .r_k = r_k.view()};
    } else {
      recurrence.key_heads = shape.key_heads;
      recurrence.terms = Mamba2Terms{.dt_rate = dt_rate.view(),
                                     .dt_bias = dt_bias.view(),
                                     .skip = skip.view(),
                                     .dt_least = 0.25F,
                                     .dt_most = 2.0F};
    }
    return recurrence;
  }
  RecurrenceInputs views() {
    RecurrenceInputs views = {.q = q.view(), .k = k.view(), .v = v.view()};
    views.decay = decay.view();
    if (rule == Rule::kMamba2) return views;
    views.rate = rate.view();
    views.bonus = bonus.view();
    if (mixes) {
      views.first = first.view();
      views.mix = mix.view();
    }
    return views;
  }
  // The views from input `input` on.
  RecurrenceInputs views_from(int input) {
    RecurrenceInputs from = views();
    for (View* view : {&from.q, &from.k, &from.v, &from.decay, &from.rate, &from.first, &from.mix,
                       &from.bonus}) {
      if (view->data != nullptr) *view = view->slice(input, 1);
    }
    return from;
  }

  Terms rwkv7(int input, int head, Numbers& added) {
    const int keys = head * shape.dk;
    Terms at;
    at.q = columns_of(q, input, keys, shape.dk);
    at.v = columns_of(v, input, head * shape.dv, shape.dv);
    for (int j = 0; j < shape.dv && mixes; ++j) {
      const int column = head * shape.dv + j;
      at.v[j] += (first.at(input, column) - at.v[j]) * sigmoid_of(mix.at(input, column));
    }
    double square = eps;
    double sum = 0;
    for (int c = keys; c < keys + shape.dk; ++c) {
      const double key = k.at(input, c);
      const double alpha = sigmoid_of(rate.at(input, c));
      at.w.push_back(std::exp(-std::exp(-0.5) * sigmoid_of(decay.at(input, c))));
      at.a.push_back(-key * k_k.at(0, c));
      at.b.push_back(key * k_k.at(0, c) * alpha);
      at.k.push_back(key * (1 + (alpha - 1) * k_a.at(0, c)));
      square += at.a.back() * at.a.back();
      sum += q.at(input, c) * at.k.back() * r_k.at(0, c);
    }
    const double length = std::max(std::sqrt(square), 1e-12);
    for (double& a : at.a) a /= length;
    for (double& b : at.b) b /= length;
    at.y.assign(shape.dv, 0);
    for (const double value : at.v) added.push_back(sum * value);
    return at;
  }

  Terms mamba2(int input, int head) {
    const int keys = head / (shape.heads / shape.key_heads) * shape.dk;
    const double raw = double{decay.at(input, head)} + dt_bias.at(0, head);
    const double dt = std::clamp(std::log1p(std::exp(raw)), 0.25, 2.0);
    Terms at;
    at.q = columns_of(q, input, keys, shape.dk);
    at.k = columns_of(k, input, keys, shape.dk);
    at.w.assign(shape.dk, std::exp(-dt_rate.at(0, head) * dt));
    at.a.assign(shape.dk, 0);
    at.b.assign(shape.dk, 0);
    for (const double x : columns_of(v, input, head * shape.dv, shape.dv)) {
      at.v.push_back(dt * x);
      at.y.push_back(skip.at(0, head) * x);
    }
    return at;
  }

  Rule rule;
  Shape shape;
  bool mixes = true;
  float eps = 0.0F;
  Guarded q, k, v, decay, rate, first, mix, bonus, k_k, k_a, r_k, dt_rate, dt_bias, skip;
};

// Compares one head of one row.
void expect_head(Inputs& inputs, SlotStates& states, Batch& batch, int row, int head,
                 Numbers& state, Guarded& out) {
  const Shape shape = inputs.shape;
  const int size = shape.dk * shape.dv;
  const Numbers initial = states.initial(batch.slot[row]);
  Numbers held(initial.begin() + int64_t{head} * size, initial.begin() + int64_t{head + 1} * size);
  for (int input = batch.first[row]; input < batch.first[row + 1]; ++input) {
    Numbers bonus;
    const Terms terms =
        inputs.rule == Rule::kRwkv7 ? inputs.rwkv7(input, head, bonus) : inputs.mamba2(input, head);
    const Numbers y = advance(held, terms);
    // Sums of dk products of numbers around 1.
    const double tolerance = 2e-6 * (10 + shape.dk);
    for (int j = 0; j < shape.dv; ++j) {
      const int column = head * shape.dv + j;
      ASSERT_NEAR(out.at(input, column), y[j], tolerance * (1 + std::abs(y[j])))
          << shape.dk << " x " << shape.dv << " row " << row << " head " << head;
      if (inputs.rule == Rule::kMamba2) continue;
      ASSERT_NEAR(inputs.bonus.at(input, column), bonus[j], tolerance * (1 + std::abs(bonus[j])));
    }
  }
  state.insert(state.end(), held.begin(), held.end());
}

class Rules : public KernelTest {
 protected:
  void expect_matches(Inputs inputs, Batch batch, int slots) {
    const Shape shape = inputs.shape;
    SlotStates states(slots, shape.heads * shape.dk * shape.dv, shape.dk % 4 + shape.dv % 4 == 0);
    Guarded out(batch.inputs(), shape.values(), 4);
    const Recurrence recurrence = inputs.recurrence();
    ASSERT_TRUE(backend().takes(recurrence).ok());
    ASSERT_EQ(backend().state_bytes(recurrence), states.size * 4);
    backend().recur(batch.rows(), batch.control(), recurrence, inputs.views(), states.states(),
                    out.view());
    out.expect_guards("recur: out");
    inputs.bonus.expect_guards("recur: bonus");
    states.expect_rest_untouched(batch);
    for (size_t row = 0; row < batch.slot.size(); ++row) {
      const int at = static_cast<int>(row);
      if (batch.slot[row] < 0) {
        for (int i = batch.first[row]; i < batch.first[row + 1]; ++i) {
          EXPECT_TRUE(std::isnan(out.at(i, 0)));
        }
        continue;
      }
      Numbers state;
      for (int head = 0; head < shape.heads; ++head) {
        expect_head(inputs, states, batch, at, head, state, out);
      }
      states.expect_near(batch.slot[row], state, 2e-6 * (10 + shape.dk));
    }
  }
};

constexpr int kSizes[] = {1, 3, 16, 17, 32, 33, 64, 65, 100, 128};

TEST_P(Rules, Rwkv7MatchesItsEquationsOnShapesThatBreak) {
  for (const int dk : kSizes) {
    for (const int dv : kSizes) {
      Inputs inputs(Rule::kRwkv7, {2, 2, dk, dv}, 7);
      inputs.mixes = dk % 2 == 0;
      inputs.eps = dv % 2 == 0 ? 0.0F : 1e-6F;
      expect_matches(inputs, Batch({2, -1, 0, 1}, {1, 2, 3, 1}), 4);
    }
  }
}

TEST_P(Rules, Mamba2MatchesItsEquationsOnShapesThatBreak) {
  for (const int dk : kSizes) {
    for (const int dv : kSizes) {
      const int groups = dk % 2 == 0 ? 2 : 1;
      expect_matches(Inputs(Rule::kMamba2, {4, groups, dk, dv}, 7),
                     Batch({2, -1, 0, 1}, {1, 2, 3, 1}), 4);
    }
  }
}

TEST_P(Rules, MatchTheirEquationsWhenThreadsShare) {
  std::vector<int32_t> slots(30);
  std::iota(slots.rbegin(), slots.rend(), 0);
  std::vector<int> lengths(30, 1);
  lengths[7] = 12;
  lengths[8] = 0;
  expect_matches(Inputs(Rule::kRwkv7, {4, 4, 64, 64}, 40), Batch(slots, lengths), 30);
  expect_matches(Inputs(Rule::kMamba2, {4, 2, 128, 64}, 40), Batch(slots, lengths), 30);
}

// A key of zeros has no direction, but nothing is divided by zero.
TEST_P(Rules, ARwkv7KeyOfZerosIsFinite) {
  Inputs inputs(Rule::kRwkv7, {1, 1, 20, 20}, 1);
  inputs.k.fill(std::vector<float>(20, 0.0F));
  expect_matches(inputs, Batch({0}, {1}), 1);
}

// Numbers far out of range saturate.
TEST_P(Rules, LargeInputsStayFinite) {
  for (const Rule rule : {Rule::kRwkv7, Rule::kMamba2}) {
    for (const float size : {-1e30F, 1e30F}) {
      Inputs inputs(rule, {1, 1, 20, 20}, 1);
      inputs.decay.fill(std::vector<float>(inputs.decay.cols(), size));
      inputs.rate.fill(std::vector<float>(20, size));
      expect_matches(inputs, Batch({0}, {1}), 1);
    }
  }
}

// A prompt in one call gives the same bits as stepping through it, in any batch and with any number
// of threads.
TEST_P(Rules, BitsDependOnlyOnTheRow) {
  const int length = 9;
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  for (const Rule rule : {Rule::kRwkv7, Rule::kMamba2}) {
    for (const Shape shape : {Shape{2, 2, 64, 64}, Shape{3, 3, 17, 9}, Shape{1, 1, 100, 33}}) {
      Inputs scanned(rule, shape, 2 * length);
      Inputs stepped(rule, shape, 2 * length);
      const int size = shape.heads * shape.dk * shape.dv;
      SlotStates of_scan(2, size, shape.dk == 64);
      SlotStates of_steps(2, size, shape.dk == 64);
      Guarded all(2 * length, shape.values());
      Guarded each(2 * length, shape.values());
      Batch both({1, 0}, {length, length});
      backend().recur(both.rows(), both.control(), scanned.recurrence(), scanned.views(),
                      of_scan.states(), all.view());
      for (int input = 0; input < 2 * length; ++input) {
        Batch one({input < length ? 1 : 0}, {1});
        single->recur(one.rows(), one.control(), stepped.recurrence(), stepped.views_from(input),
                      of_steps.states(), each.view().slice(input, 1));
      }
      EXPECT_TRUE(same_bits(all.values(), each.values()));
      EXPECT_TRUE(same_bits(scanned.bonus.values(), stepped.bonus.values()));
      EXPECT_TRUE(same_bits(of_scan.memory.values(), of_steps.memory.values()));
    }
  }
}

class RuleLimits : public KernelTest {};

TEST_P(RuleLimits, StatesTooLargeAreRefused) {
  Inputs inputs(Rule::kMamba2, {1, 1, 1, 1}, 1);
  Recurrence recurrence = inputs.recurrence();
  recurrence.dk = 1024;
  EXPECT_TRUE(backend().takes(recurrence).ok());
  recurrence.dv = 1025;
  const Status status = backend().takes(recurrence);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("1024 x 1025"), std::string::npos);
  recurrence.terms = LinearTerms{};
  EXPECT_TRUE(backend().takes(recurrence).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, Rules, testing::ValuesIn(all_backends()), setup_name);
INSTANTIATE_TEST_SUITE_P(Isas, RuleLimits, testing::ValuesIn(all_isas()), setup_name);

}  // namespace
}  // namespace runnel
