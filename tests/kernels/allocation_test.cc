// After loading, no operation allocates: this program counts every operator new.
#include <gtest/gtest.h>

#include "tests/kernels/allocation_counter.h"
#include "tests/kernels/fixture.h"

namespace runnel {
namespace {

class Allocation : public KernelTest {};

// One step of a tiny network of two rows: every operation there is.
struct Step {
  Guarded table{19, 8}, x{2, 8}, qkv{2, 24}, attended{2, 8}, projected{2, 8}, head{2, 19},
      scale{1, 8}, state{2, 80}, omega{4, 3}, features{2, 24};
  Guarded log_probs{1, 2};
  Weight wide, narrow, predictor;
  std::vector<Control> control = std::vector<Control>(2);
  std::vector<Emitted> emitted = std::vector<Emitted>(2);
  int32_t slot[2] = {0, 1};
  int32_t first[3] = {0, 1, 2};
  int32_t head_row[2] = {0, 1};
  int32_t pending[2] = {-1, -1};
  int32_t values[2] = {3, 4};

  explicit Step(Backend& backend) {
    const std::vector<float> weights = random_floats(24 * 8, 1);
    wide = backend.pack({weights.data(), 24, 8}, {}, Precision::kFp32);
    narrow = backend.pack({weights.data(), 8, 8}, {}, Precision::kFp32);
    predictor = backend.pack({weights.data(), 19, 8}, {}, Precision::kFp32);
    for (Guarded* matrix : {&table, &scale, &state, &omega}) {
      matrix->fill(std::vector<float>(static_cast<size_t>(matrix->rows()) * matrix->cols(), 0.5F));
    }
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
    backend.sample(rows, {head_row, pending}, kind, head.view(), control.data(), emitted.data());
  }
};

TEST_P(Allocation, NoOperationAllocates) {
  Step step(backend());
  const int64_t before = allocation_count();
  for (int i = 0; i < 11; ++i) step.run(backend());
  EXPECT_EQ(allocation_count(), before);
  EXPECT_EQ(step.control[0].position, 11);
}

INSTANTIATE_TEST_SUITE_P(Setups, Allocation, testing::ValuesIn(all_setups()), setup_name);

}  // namespace
}  // namespace runnel
