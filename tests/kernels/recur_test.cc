#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/batch.h"

namespace runnel {
namespace {

struct Shape {
  int heads, dk, dv;
  int state_floats() const { return heads * (dk * dv + dk); }
};

// States of some slots, in memory that detects writes around them.
struct Slots {
  Slots(int count, const Shape& shape) : memory(count, shape.state_floats() + 6, 3) {
    memory.fill(random_state(count, shape));
  }
  // z is positive, as in a real state.
  static std::vector<float> random_state(int count, const Shape& shape) {
    std::vector<float> state = random_floats(int64_t{count} * (shape.state_floats() + 6), 77);
    for (float& x : state) x = std::abs(x);
    return state;
  }
  States states() {
    return {reinterpret_cast<std::byte*>(memory.row(0)), memory.view().stride * int64_t{4}, 3 * 4};
  }
  Guarded memory;  // each row: 3 floats of another layer, the state, 3 more
};

struct Inputs {
  Inputs(int count, const Shape& shape, int extra)
      : q(count, shape.heads * shape.dk, extra),
        k(count, shape.heads * shape.dk, extra + 1),
        v(count, shape.heads * shape.dv, extra + 2),
        gate(count, shape.heads, extra + 3) {
    q.fill(random_floats(int64_t{count} * q.cols(), 1));
    k.fill(random_floats(int64_t{count} * k.cols(), 2));
    v.fill(random_floats(int64_t{count} * v.cols(), 3));
    gate.fill(random_floats(int64_t{count} * gate.cols(), 4, 3.0F));
  }
  RecurrenceInputs views(bool gated = false) {
    return {q.view(), k.view(), v.view(), gated ? gate.view() : View{}};
  }
  Guarded q, k, v, gate;
};

struct Kind {
  FeatureMap map = FeatureMap::kElu;
  bool gated = false;
};

Recurrence recurrence_of(const Shape& shape, Kind kind = {}) {
  return {.heads = shape.heads,
          .dk = shape.dk,
          .dv = shape.dv,
          .terms = LinearTerms{.map = kind.map, .gated = kind.gated}};
}

reference::Vector slice(Guarded& from, int row, int begin, int count) {
  return {from.row(row) + begin, from.row(row) + begin + count};
}

reference::Vector mapped(FeatureMap map, reference::Vector x) {
  for (double& value : x) value = reference::phi(map, value);
  return x;
}

// Compares the state and outputs of one head of one row with the reference.
void expect_head(const Shape& shape, Kind kind, Guarded& before, Guarded& after, Batch& batch,
                 int row, int head, Inputs& inputs, Guarded& out) {
  const int at = 3 + head * (shape.dk * shape.dv + shape.dk);
  const int slot = batch.slot[row];
  reference::HeadState state = {slice(before, slot, at, shape.dk * shape.dv),
                                slice(before, slot, at + shape.dk * shape.dv, shape.dk)};
  for (int input = batch.first[row]; input < batch.first[row + 1]; ++input) {
    const auto features = [&](Guarded& of) {
      return mapped(kind.map, slice(of, input, head * shape.dk, shape.dk));
    };
    std::optional<double> gate;
    if (kind.gated) gate = 1 / (1 + std::exp(-double{inputs.gate.at(input, head)}));
    const reference::Vector y = reference::attention_step(
        features(inputs.q), features(inputs.k), slice(inputs.v, input, head * shape.dv, shape.dv),
        gate, 1e-6, state);
    for (int j = 0; j < shape.dv; ++j) {
      ASSERT_NEAR(out.at(input, head * shape.dv + j), y[j], 2e-5 * (1 + std::abs(y[j])))
          << "dk " << shape.dk << " dv " << shape.dv << " row " << row << " column " << j;
    }
  }
  for (int i = 0; i < shape.dk * shape.dv + shape.dk; ++i) {
    const double expected = i < shape.dk * shape.dv ? state.s[i] : state.z[i - shape.dk * shape.dv];
    ASSERT_NEAR(after.at(slot, at + i), expected, 1e-5 * (1 + std::abs(expected)));
  }
}

class Recur : public KernelTest {
 protected:
  void expect_matches(const Shape& shape, Batch batch, int slots, Kind kind = {}) {
    Slots held(slots, shape);
    Slots before(slots, shape);
    Inputs inputs(batch.inputs(), shape, 1);
    // features() gives numbers that are not negative and no larger than these.
    if (kind.map == FeatureMap::kNone) {
      for (Guarded* const x : {&inputs.q, &inputs.k}) {
        std::vector<float> values = x->values();
        for (float& value : values) value = std::abs(value);
        x->fill(values);
      }
    }
    Guarded out(batch.inputs(), shape.heads * shape.dv, 4);
    backend().recur(batch.rows(), batch.control(), recurrence_of(shape, kind),
                    inputs.views(kind.gated), held.states(), out.view());
    out.expect_guards("recur: out");
    held.memory.expect_guards("recur: states");
    std::vector<bool> touched(slots, false);
    for (size_t row = 0; row < batch.slot.size(); ++row) {
      if (batch.slot[row] < 0) continue;
      touched[batch.slot[row]] = batch.first[row] < batch.first[row + 1];
      for (int head = 0; head < shape.heads; ++head) {
        expect_head(shape, kind, before.memory, held.memory, batch, static_cast<int>(row), head,
                    inputs, out);
      }
    }
    for (int slot = 0; slot < slots; ++slot) {
      for (int i = 0; i < before.memory.cols(); ++i) {
        const bool around = i < 3 || i >= 3 + shape.state_floats();
        if (!around && touched[slot]) continue;
        ASSERT_EQ(before.memory.at(slot, i), held.memory.at(slot, i)) << "slot " << slot;
      }
    }
  }
};

TEST_P(Recur, MatchesReferenceOnShapesThatBreak) {
  for (const int dk : {1, 3, 17, 30, 32, 64, 65, 100}) {
    for (const int dv : {1, 3, 16, 17, 31, 32, 33, 100}) {
      expect_matches({2, dk, dv}, Batch({2, 0, 1}, {1, 3, 1}), 3);
    }
  }
}

TEST_P(Recur, MatchesReferenceWithOtherMapsAndGates) {
  for (const Shape shape : {Shape{2, 1, 3}, Shape{3, 17, 33}, Shape{2, 32, 32}, Shape{1, 65, 20},
                            Shape{2, 100, 64}, Shape{1, 64, 128}}) {
    for (const FeatureMap map : {FeatureMap::kNone, FeatureMap::kElu, FeatureMap::kRelu}) {
      for (const bool gated : {false, true}) {
        expect_matches(shape, Batch({2, 0, 1}, {1, 3, 1}), 3, {map, gated});
      }
    }
  }
}

TEST_P(Recur, MatchesReferenceWhenThreadsShare) {
  std::vector<int32_t> slots(50);
  std::iota(slots.rbegin(), slots.rend(), 0);
  expect_matches({4, 32, 32}, Batch(slots, std::vector<int>(50, 1)), 50);
  std::vector<int> lengths(50, 1);
  lengths[7] = 40;
  lengths[8] = 0;
  expect_matches({4, 32, 32}, Batch(slots, lengths), 50);
}

TEST_P(Recur, FrozenRowsAreLeftAlone) {
  const Shape shape = {2, 17, 5};
  expect_matches(shape, Batch({-1, 1, -1}, {2, 1, 1}), 2);
  Slots held(2, shape);
  Inputs inputs(4, shape, 0);
  Guarded out(4, 10);
  Batch batch({-1, 1, -1}, {2, 1, 1});
  backend().recur(batch.rows(), batch.control(), recurrence_of(shape), inputs.views(),
                  held.states(), out.view());
  for (const int frozen : {0, 1, 3}) {
    for (int j = 0; j < 10; ++j) EXPECT_TRUE(std::isnan(out.at(frozen, j)));
  }
}

// A prompt in one call gives the same bits as stepping through it, in any batch.
TEST_P(Recur, ScanningEqualsStepping) {
  for (const Shape shape : {Shape{2, 32, 32}, Shape{3, 17, 9}, Shape{1, 100, 33}}) {
    const int length = 25;
    Slots scanned(2, shape);
    Slots stepped(2, shape);
    Inputs inputs(2 * length, shape, 0);
    Guarded all(2 * length, shape.heads * shape.dv);
    Guarded single(2 * length, shape.heads * shape.dv);
    Batch both({1, 0}, {length, length});
    backend().recur(both.rows(), both.control(), recurrence_of(shape, {.gated = true}),
                    inputs.views(true), scanned.states(), all.view());
    for (int input = 0; input < 2 * length; ++input) {
      const auto row = [&](View view) {
        view.data = view.f32(input);
        return view.top(1);
      };
      Batch one({input < length ? 1 : 0}, {1});
      const RecurrenceInputs at = {row(inputs.q.view()), row(inputs.k.view()), row(inputs.v.view()),
                                   row(inputs.gate.view())};
      backend().recur(one.rows(), one.control(), recurrence_of(shape, {.gated = true}), at,
                      stepped.states(), row(single.view()));
    }
    EXPECT_TRUE(same_bits(all.values(), single.values()));
    EXPECT_TRUE(same_bits(scanned.memory.values(), stepped.memory.values()));
  }
}

TEST_P(Recur, BitsDoNotDependOnThreadsOrOrder) {
  const Shape shape = {4, 32, 33};
  const std::unique_ptr<Backend> single = make_backend(GetParam().alone());
  Inputs inputs(60, shape, 0);
  std::vector<int32_t> slots(60);
  std::iota(slots.begin(), slots.end(), 0);
  Slots one(60, shape);
  Slots many(60, shape);
  Guarded out_one(60, shape.heads * shape.dv);
  Guarded out_many(60, shape.heads * shape.dv);
  Batch batch(slots, std::vector<int>(60, 1));
  single->recur(batch.rows(), batch.control(), recurrence_of(shape, {.gated = true}),
                inputs.views(true), one.states(), out_one.view());
  backend().recur(batch.rows(), batch.control(), recurrence_of(shape, {.gated = true}),
                  inputs.views(true), many.states(), out_many.view());
  EXPECT_TRUE(same_bits(out_one.values(), out_many.values()));
  EXPECT_TRUE(same_bits(one.memory.values(), many.memory.values()));
}

TEST_P(Recur, LargeInputsStayFinite) {
  const Shape shape = {1, 20, 20};
  Slots held(1, shape);
  Inputs inputs(1, shape, 0);
  inputs.k.fill(std::vector<float>(20, -1e30F));
  inputs.q.fill(std::vector<float>(20, -500.0F));
  Guarded out(1, 20);
  Batch batch({0}, {1});
  backend().recur(batch.rows(), batch.control(), recurrence_of(shape), inputs.views(),
                  held.states(), out.view());
  for (const float y : out.values()) EXPECT_TRUE(std::isfinite(y));
}

INSTANTIATE_TEST_SUITE_P(Backends, Recur, testing::ValuesIn(all_backends()), setup_name);

}  // namespace
}  // namespace runnel
