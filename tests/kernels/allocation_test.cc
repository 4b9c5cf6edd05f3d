// No operation allocates memory after loading: this program counts every allocation.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <vector>

#include "kernels/experts.h"
#include "tests/kernels/allocation_counter.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

constexpr int kSteps = 11;

class Allocation : public KernelTest {};

void fill_with_halves(std::initializer_list<Guarded*> matrices) {
  for (Guarded* matrix : matrices) {
    matrix->fill(std::vector<float>(static_cast<size_t>(matrix->rows()) * matrix->cols(), 0.5F));
  }
}

// One step of a tiny network of two rows, with every operation of linear transformers.
struct Step {
  Guarded table{19, 8}, x{2, 8}, qkv{2, 24}, attended{2, 8}, projected{2, 8}, head{2, 19},
      scale{1, 8}, state{2, 80}, omega{4, 3}, features{2, 24};
  Guarded log_probs{1, 2};
  Weight wide, narrow, predictor;
  std::vector<Control> control = std::vector<Control>(2);
  std::vector<Sampled> sampled = std::vector<Sampled>(2);
  std::vector<TopLogProb> top = std::vector<TopLogProb>(2 * kMaxTopLogProbs);
  int32_t slot[2] = {0, 1};
  int32_t first[3] = {0, 1, 2};
  int32_t head_row[2] = {0, 1};
  int32_t pending[2] = {-1, -1};
  int32_t values[2] = {3, 4};
  int32_t ring[16] = {};
  RowPenalties penalties[2] = {};
  LogitBias bias = {3, 1.0F};

  explicit Step(Backend& backend) {
    const std::vector<float> weights = random_floats(24 * 8, 1);
    wide = backend.pack({weights.data(), 24, 8}, {}, Precision::kFp32);
    narrow = backend.pack({weights.data(), 8, 8}, {}, Precision::kFp32);
    predictor = backend.pack({weights.data(), 19, 8}, {}, Precision::kFp32);
    fill_with_halves({&table, &scale, &state, &omega});
    penalties[0] = {.repetition = 1.2F, .frequency = 0.5F, .presence = 0.5F, .biases = 1};
    for (Control& at : control) {
      at.remaining = 1000;
      at.top_log_probs = 5;
      at.sampling = {.temperature = 0.9F, .top_k = 10, .top_p = 0.9F, .min_p = 0.01F};
    }
  }

  void run(Backend& backend) {
    const Rows rows = {slot, first, 2};
    const View inputs = {values, DType::kI32, 1, 2, 2};
    const Head kind = {HeadKind::kCategorical, 19, 0};
    const Norm norm = {scale.view(), scale.view(), 1e-5F};
    backend.embed(rows, inputs, control.data(),
                  {table.view(), View{}, PositionKind::kSinusoidal, Combine::kAdd, 8}, x.view());
    backend.matmul(x.view(), wide, Activation::kNone, qkv.view());
    backend.features(qkv.view().columns(0, 16),
                     {.map = FeatureMap::kFavor, .count = 6, .omega = omega.view(), .sigma = {}},
                     features.view());
    backend.recur(rows, control.data(), {.heads = 2, .dk = 4, .dv = 4},
                  {qkv.view().columns(0, 8), qkv.view().columns(8, 8), qkv.view().columns(16, 8)},
                  {reinterpret_cast<std::byte*>(state.row(0)), 320, 0}, attended.view());
    backend.matmul(attended.view(), narrow, Activation::kGelu, projected.view());
    backend.norm(projected.view(), x.view(), norm, x.view());
    backend.matmul(x.view(), predictor, Activation::kNone, head.view());
    backend.score(kind, head.view(), inputs, log_probs.view());
    const Recent recent = {
        {reinterpret_cast<std::byte*>(ring), 32, 0}, 8, values, penalties, &bias};
    backend.sample(rows, {head_row, pending, recent}, kind, head.view(), control.data(),
                   {sampled.data(), top.data()});
  }
};

// The operations of the other recurrences.
struct OtherStep {
  Guarded x{2, 8}, shifted{2, 16}, out{2, 8}, bonus{2, 8}, states{2, 200}, constants{4, 8};
  Weight weight;
  int32_t slot[2] = {0, 1};
  int32_t first[3] = {0, 1, 2};
  Control control[2];

  explicit OtherStep(Backend& backend) {
    const std::vector<float> weights = random_floats(8 * 8, 1);
    weight = backend.pack({weights.data(), 8, 8}, {}, Precision::kFp32);
    fill_with_halves({&x, &shifted, &out, &bonus, &states, &constants});
  }

  void run(Backend& backend) {
    const Rows rows = {slot, first, 2};
    const auto part = [&](int64_t offset) {
      return States{reinterpret_cast<std::byte*>(states.row(0)), 200 * 4, offset * 4};
    };
    const View row = constants.view().top(1);
    const Norm norm = {row, View{}, 1e-5F, NormKind::kRms, 2};
    backend.shift(rows, x.view(), constants.view().top(2), part(0), shifted.view());
    backend.convolve(rows, shifted.view().columns(8, 8), {constants.view(), row}, part(8),
                     out.view());
    RecurrenceInputs inputs = {.q = x.view(), .k = out.view(), .v = x.view()};
    inputs.decay = inputs.rate = inputs.first = inputs.mix = x.view();
    inputs.bonus = bonus.view();
    const Recurrence rwkv7 = {
        .heads = 2, .dk = 4, .dv = 4, .terms = Rwkv7Terms{.k_k = row, .k_a = row, .r_k = row}};
    backend.recur(rows, control, rwkv7, inputs, part(32), out.view());
    const View of_heads = row.columns(0, 2);
    const Recurrence mamba2 = {
        .heads = 2,
        .dk = 4,
        .dv = 4,
        .terms = Mamba2Terms{.dt_rate = of_heads, .dt_bias = of_heads, .skip = of_heads}};
    inputs.decay = x.view().columns(0, 2);
    backend.recur(rows, control, mamba2, inputs, part(64), out.view());
    backend.gated_norm(out.view(), norm, {bonus.view()}, out.view());
    backend.matmul(out.view(), weight, {Activation::kSilu, bonus.view(), x.view()},
                   shifted.view().columns(0, 8));
  }
};

// Products in every precision, experts, attention, and the rules that OtherStep lacks.
struct WideStep {
  static constexpr int kWidth = 64;
  Guarded x{2, kWidth}, out{2, kWidth}, scores{2, 3}, shares{2, 2}, wide{2, 2 * kWidth},
      hidden{2, 2 * kWidth}, states{2, 64}, rates{8, 4}, cache{2, 32 * kPagePositions};
  std::vector<Weight> weights, up, down;
  int32_t used[4] = {};
  int32_t slot[2] = {0, 1};
  int32_t first[3] = {0, 1, 2};
  Control control[2];

  explicit WideStep(Backend& backend) {
    const std::vector<float> numbers = random_floats(kWidth * kWidth, 1, 0.1F);
    const HostTensor weight = {numbers.data(), kWidth, kWidth};
    for (const Precision precision : precisions_of(backend)) {
      weights.push_back(backend.pack(weight, {}, precision));
    }
    const std::vector<std::byte> blocks(kWidth * kWidth / 32 * 34);  // of Q8_0, with scales of 0
    weights.push_back(backend.pack({blocks.data(), kWidth, kWidth, DType::kF32, StoredType::kQ8_0},
                                   {}, Precision::kBlocks));
    for (int e = 0; e < 3; ++e) {
      up.push_back(backend.pack(weight, {}, Precision::kBf16));
      down.push_back(backend.pack(weight, {}, Precision::kBf16));
    }
    fill_with_halves({&x, &scores, &states, &rates});
  }

  void run(Backend& backend) {
    const Rows rows = {slot, first, 2};
    const auto columns = [&](int begin, int count) { return x.view().columns(begin, count); };
    const auto part = [&](Guarded& of, int64_t offset) {
      return States{reinterpret_cast<std::byte*>(of.row(0)), of.cols() * int64_t{4}, offset * 4};
    };
    for (const Weight& weight : weights) {
      backend.matmul(x.view(), weight, {Activation::kGelu, {}, x.view()}, out.view());
    }
    backend.experts(x.view(), scores.view(), {up, up, down, Activation::kSilu, {.chosen = 2}},
                    {{used, DType::kI32, 2, 2, 2}, shares.view(), wide.view(), hidden.view()},
                    out.view());
    const Attention attention = {.heads = 2, .kv_heads = 1, .dk = 16, .dv = 16};
    backend.attend(rows, control, attention, {columns(0, 32), columns(32, 16), columns(48, 16)},
                   {part(cache, 0), attention.page_bytes(), kPagePositions},
                   out.view().columns(0, 32));
    const GatedTerms delta = {.norm = KeyNorm::kL2, .delta = 1.0F};
    backend.recur(rows, control, {.heads = 2, .dk = 4, .dv = 4, .terms = delta},
                  {.q = columns(0, 8), .k = columns(8, 8), .v = columns(16, 8)}, part(states, 0),
                  out.view().columns(32, 8));
    const View row = columns(0, 8).top(1);
    const Mamba1Terms mamba1 = {.dt_rate = rates.view(), .dt_bias = row, .skip = row};
    backend.recur(rows, control, {.heads = 2, .key_heads = 1, .dk = 4, .dv = 4, .terms = mamba1},
                  {.q = columns(0, 4),
                   .k = columns(4, 4),
                   .v = columns(8, 8),
                   .gate = columns(16, 8),
                   .decay = columns(24, 8)},
                  part(states, 32), out.view().columns(40, 8));
  }
};

template <typename AnyStep>
void expect_no_allocation(AnyStep& step, Backend& backend) {
  const int64_t before = allocation_count();
  for (int i = 0; i < kSteps; ++i) step.run(backend);
  EXPECT_EQ(allocation_count(), before);
}

void expect_finite(Guarded& matrix) {
  for (const float x : matrix.values()) EXPECT_TRUE(std::isfinite(x));
}

TEST_P(Allocation, NoProductExpertAttentionOrRuleAllocates) {
  WideStep step(backend());
  expect_no_allocation(step, backend());
  expect_finite(step.out);
}

TEST_P(Allocation, NoOperationOfOtherRecurrencesAllocates) {
  OtherStep step(backend());
  expect_no_allocation(step, backend());
  expect_finite(step.shifted);
}

TEST_P(Allocation, NoOperationAllocates) {
  Step step(backend());
  expect_no_allocation(step, backend());
  EXPECT_EQ(step.control[0].position, kSteps);
}

INSTANTIATE_TEST_SUITE_P(Setups, Allocation, testing::ValuesIn(all_setups()), setup_name);

}  // namespace
}  // namespace runnel
