// Tests slots, batches and results with a network that is not a linear transformer. It sums the
// values that it consumes and is certain of its next value: the sum modulo the vocabulary.
#include "models/recurrent_model.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr int kSymbols = 7;
constexpr int64_t kPositions = 1000;
constexpr ModelLimits kRecurrentLimits = {.slots = 4, .rows = 4, .values = 16, .steps = 3};

struct Calls {
  int forward = 0;
  int fused = 0;
};

class SumNetwork final : public Network {
 public:
  SumNetwork(bool fused, Calls& calls) : fused_(fused), calls_(calls) {}

  void forward(const Run& run) const override {
    ++calls_.forward;
    for (int row = 0; row < run.rows.count; ++row) {
      const int32_t slot = run.rows.slot[row];
      if (slot < 0) continue;
      auto& sum = *reinterpret_cast<int32_t*>(run.states.base + slot * run.states.slot_bytes);
      for (int input = run.rows.first[row]; input < run.rows.first[row + 1]; ++input) {
        const int at = input - run.first;
        const int32_t given = run.values.i32()[at];
        sum += given == kNoValue ? run.control[slot].pending : given;
        if (at >= run.read) continue;
        for (int i = 0; i < kSymbols; ++i) {
          run.head.f32(at)[i] = i == sum % kSymbols ? 0.0F : -1e4F;
        }
      }
    }
  }
  bool fused() const override { return fused_; }
  void steps(const Run& run, SampledTo to, int64_t stride, int steps) const override {
    ++calls_.fused;
    for (int step = 0; step < steps; ++step) {
      for (int row = 0; row < run.rows.count; ++row) {
        to.rows[step * stride + row].row = row;
        to.rows[step * stride + row].value = step;
      }
    }
  }

 private:
  const bool fused_;
  Calls& calls_;
};

class RecurrentModelTest : public testing::Test {
 protected:
  explicit RecurrentModelTest(bool fused = false)
      : backend_(make_cpu_backend({.isa = {}, .threads = 1}).value()) {
    Spec spec;
    spec.vocabulary = kSymbols;
    spec.positions = kPositions;
    spec.head = {HeadKind::kCategorical, kSymbols, 0};
    const StateLayout layout = {.state_bytes = sizeof(int32_t),
                                .parts = {{"sum", DType::kI32, {1}, 0, sizeof(int32_t)}},
                                .numerics = "sums"};
    model_ = make_recurrent_model(spec, *backend_, kRecurrentLimits, layout,
                                  std::make_unique<SumNetwork>(fused, calls_));
  }

  // Begins a sequence that will consume `first` and may sample.
  void begin(SlotId slot, int32_t first) {
    Control control;
    control.pending = first;
    control.remaining = 100;
    model_->set(slot, control, true);
  }
  std::vector<Emitted> submit(const std::vector<Row>& rows, int steps = 1) {
    std::vector<Emitted> emitted;
    finish(*model_, model_->submit(rows, steps), emitted);
    return emitted;
  }
  int32_t sum(SlotId slot) {
    int32_t sum = 0;
    model_->read(slot, 0, std::as_writable_bytes(std::span(&sum, 1)));
    return sum;
  }

  Calls calls_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

class FusedRecurrentModelTest : public RecurrentModelTest {
 protected:
  FusedRecurrentModelTest() : RecurrentModelTest(true) {}
};

std::vector<int32_t> values_of(const std::vector<Emitted>& emitted, int row) {
  std::vector<int32_t> values;
  for (const Emitted& at : emitted) {
    if (at.row == row) values.push_back(at.value);
  }
  return values;
}

TEST_F(RecurrentModelTest, StepsAnyNetwork) {
  EXPECT_EQ(model_->layout().state_bytes, 4);
  EXPECT_EQ(model_->layout().parts[0].name, "sum");
  EXPECT_EQ(model_->layout().numerics, "sums");
  begin(0, 1);
  begin(3, 5);
  const auto emitted = submit({{3, {}, Want::kNext}, {0, {}, Want::kNext}}, 3);
  EXPECT_EQ(values_of(emitted, 0), (std::vector<int32_t>{5, 3, 6}));  // sums 5, 10, 13
  EXPECT_EQ(values_of(emitted, 1), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(sum(3), 13);
  EXPECT_EQ(emitted[5].position, 3);
  EXPECT_EQ(calls_.forward, 3);
}

TEST_F(RecurrentModelTest, RowsOfABatchMayWantDifferentResults) {
  for (SlotId slot = 0; slot < 3; ++slot) begin(slot, slot + 1);
  const std::vector<int32_t> scored = {2, 4, 0};  // after 2: 2 is certain, then 4, then 1
  const std::vector<int32_t> prompt = {6, 6};
  const auto emitted =
      submit({{0, {}, Want::kNext}, {1, scored, Want::kScores}, {2, prompt, Want::kNothing}});
  ASSERT_EQ(emitted.size(), 4U);
  EXPECT_EQ(emitted[0].value, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(emitted[1 + i].row, 1);
    EXPECT_EQ(emitted[1 + i].value, scored[i]);
    EXPECT_NEAR(emitted[1 + i].log_prob, i < 2 ? 0.0 : -1e4, 1e-2);
  }
  EXPECT_EQ(sum(1), 2 + 2 + 4);  // the last value is pending
  EXPECT_EQ(sum(2), 3 + 6);
}

TEST_F(RecurrentModelTest, AScoreMayComeWithTheMostLikelyValues) {
  for (SlotId slot = 0; slot < 3; ++slot) begin(slot, slot + 1);
  const std::vector<int32_t> scored = {2, 4, 0};  // after 2: 2 is certain, then 4, then 1
  const std::vector<int32_t> likely = {2, 4, 1};
  for (int again = 0; again < 2; ++again) {
    begin(1, 2);
    begin(2, 2);
    const auto emitted = submit(
        {{0, {}, Want::kNext}, {1, scored, Want::kScores, 0}, {2, scored, Want::kScores, 3}});
    ASSERT_EQ(emitted.size(), 7U);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(emitted[1 + i].top.empty());
      const Emitted& at = emitted[4 + i];
      ASSERT_EQ(at.top.size(), 3U);
      EXPECT_EQ(at.top[0].value, likely[i]);
      EXPECT_NEAR(at.top[0].log_prob, 0, 1e-2);
      EXPECT_NEAR(at.top[1].log_prob, -1e4, 1e-2);
      if (i < 2) {
        EXPECT_EQ(at.top[0].log_prob, at.log_prob) << "the same bits";
      }
      EXPECT_EQ(at.log_prob, emitted[1 + i].log_prob);
    }
    EXPECT_EQ(sum(2), 2 + 2 + 4) << "the state goes on as without them";
  }
}

TEST_F(RecurrentModelTest, AStateIsCopiedReadAndWrittenWithoutItsPosition) {
  begin(0, 3);
  submit({{0, {}, Want::kNext}}, 2);
  model_->copy(0, 1, 0);
  const std::vector<std::byte> state = state_bytes(*model_, 0);
  begin(2, 0);
  EXPECT_EQ(sum(2), 0);
  model_->write(2, 0, state);
  EXPECT_EQ(sum(2), 6);
  const auto emitted = submit({{1, {}, Want::kNext}, {2, {}, Want::kNext}});
  EXPECT_EQ(emitted[0].value, (6 + 6) % kSymbols);  // the copy has pending 6
  EXPECT_EQ(emitted[0].position, 3);
  EXPECT_EQ(emitted[1].value, 6);  // the slot keeps its pending 0
  EXPECT_EQ(emitted[1].position, 1);
}

using RecurrentModelDeathTest = RecurrentModelTest;
TEST_F(RecurrentModelDeathTest, ASlotTakesOnlyValuesAndPositionsOfTheSpec) {
  Control control;
  control.pending = kSymbols;
  EXPECT_DEATH(model_->set(0, control, true), "one of the vocabulary");
  control.pending = 0;
  control.position = kPositions + 1;
  EXPECT_DEATH(model_->set(0, control, true), "one of the sequence");
  control.position = -1;
  EXPECT_DEATH(model_->set(0, control, true), "one of the sequence");
  EXPECT_DEATH(model_->set(kRecurrentLimits.slots, Control(), true), "slot");
}

TEST_F(FusedRecurrentModelTest, ABatchThatOnlySamplesUsesTheNetworksFusedSteps) {
  begin(0, 1);
  begin(1, 1);
  const auto emitted = submit({{0, {}, Want::kNext}, {1, {}, Want::kNext}}, 3);
  EXPECT_EQ(values_of(emitted, 1), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(calls_.fused, 1);
  EXPECT_EQ(calls_.forward, 0);
  const std::vector<int32_t> prompt = {6, 6};
  submit({{0, {}, Want::kNext}, {1, prompt, Want::kNothing}});
  EXPECT_EQ(calls_.fused, 1);
  EXPECT_EQ(calls_.forward, 1);
}

}  // namespace
}  // namespace runnel
