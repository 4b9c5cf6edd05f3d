#include "models/state/form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "models/state/file.h"
#include "tests/kernels/host_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr ModelLimits kLimits = {.slots = 3, .rows = 2, .values = 64, .steps = 1};

// A model with the GPU's kernels, run on the host.
struct GpuModel {
  explicit GpuModel(bool replay)
      : backend(cuda::make_host_backend({.replay = replay})),
        model(make_model(random_bundle(small_symbol_spec(), 3), *backend, kLimits).value()) {}

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

std::vector<int32_t> values_of(int count) {
  std::vector<int32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i * 7 % 11;
  return values;
}

// The state of a slot after `count` values, the last of them pending, in the form of state files.
std::vector<std::byte> travelling_state(Model& model, SlotId slot, int count) {
  begin_sequence(model, slot, 1);
  feed(model, slot, values_of(count), 64, Want::kNothing);
  std::vector<std::byte> state = state_bytes(model, slot);
  fold_logs(model.layout(), count, state);
  std::vector<std::byte> travels;
  for (const StatePart& part : travelling_parts(model.layout(), 0)) {
    PartWalk walk(part, state);
    for (auto piece = walk.next(1 << 20); !piece.empty(); piece = walk.next(1 << 20)) {
      travels.insert(travels.end(), piece.begin(), piece.end());
    }
  }
  return travels;
}

TEST(StateForm, FoldingALogGivesTheBitsOfThePlainForm) {
  GpuModel plain(false);
  GpuModel replay(true);
  EXPECT_GT(replay.model->layout().parts.size(),
            travelling_parts(replay.model->layout(), 0).size());
  for (int count = 1; count < 20; ++count) {
    EXPECT_EQ(travelling_state(*replay.model, 0, count), travelling_state(*plain.model, 0, count))
        << count;
  }
}

// The log of a slot is folded in a file. A slot that loads the file continues with the same bits.
TEST(StateForm, AFoldedStateContinuesWithTheSameBits) {
  for (int count = 5; count < 15; ++count) {
    GpuModel gpu(true);
    Model& model = *gpu.model;
    begin_sequence(model, 0, 1);
    feed(model, 0, values_of(count), 64, Want::kNothing);
    std::vector<std::byte> state = state_bytes(model, 0);
    const int32_t pending = values_of(count).back();
    StateWriter writer("m", model.layout(), {count + 1, pending, state}, nullptr);
    const std::string file = writer.next(1 << 20);
    StateReader reader([&](const StateHeader&) { return Result<StateLayout>(model.layout()); },
                       nullptr);
    ASSERT_TRUE(reader.add(std::as_bytes(std::span(file))).ok());
    const auto image = reader.finish();
    ASSERT_TRUE(image.ok());
    model.write(1, 0, image->bytes);
    sample_from(model, 0, pending, count, 42, 12);
    sample_from(model, 1, pending, count, 42, 12);
    const HarnessRun undisturbed = generate(model, 0, 12);
    const HarnessRun travelled = generate(model, 1, 12);
    EXPECT_EQ(travelled.values, undisturbed.values);
    EXPECT_EQ(travelled.log_probs, undisturbed.log_probs);
  }
}

// Subnormals become zeros anywhere in a part with gaps between its entries. Gaps do not change.
TEST(StateForm, SmallNumbersBecomeZerosAndOthersStay) {
  const StatePart part = {
      .name = "p", .type = DType::kF32, .shape = {2, 1500}, .offset = 4, .stride = 6016};
  const float least = std::numeric_limits<float>::min();
  const float small = std::numeric_limits<float>::denorm_min();
  std::vector<float> state(1 + 2 * 1504, -least);
  for (const size_t at : {1, 1024, 1025, 1500, 1505, 3004})
    state[at] = at % 2 == 0 ? small : -small;
  state[0] = state[1501] = small;
  std::vector<float> expected = state;
  for (const size_t at : {1, 1024, 1025, 1500, 1505, 3004}) expected[at] = 0;
  const PartNumbers found = flush_subnormals(part, std::as_writable_bytes(std::span(state)));
  EXPECT_TRUE(found.finite);
  EXPECT_EQ(found.subnormal, 6);
  EXPECT_EQ(state, expected);
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    state[2000] = -wrong;
    EXPECT_FALSE(flush_subnormals(part, std::as_writable_bytes(std::span(state))).finite);
  }
}

// Subnormal bf16 numbers would be subnormal fp32 numbers in a kernel.
TEST(StateForm, SmallNumbersOfACacheBecomeZerosToo) {
  const StatePart part = {.name = "layers.0.keys",
                          .type = DType::kBF16,
                          .shape = {2, 1, 3, 1000},
                          .stride = 6008,
                          .paged = true};
  constexpr uint16_t kLeast = 0x0080, kLargestSubnormal = 0x007f, kSign = 0x8000;
  std::vector<uint16_t> state(2 * 3004, kLeast | kSign);
  for (const size_t at : {0, 2048, 2999, 3004, 6003}) {
    state[at] = at % 2 == 0 ? kLargestSubnormal : kSign | 1;
  }
  state[7] = kSign;                 // -0
  state[3000] = kLargestSubnormal;  // in the gap after the first page
  std::vector<uint16_t> expected = state;
  for (const size_t at : {0, 2048, 2999, 3004, 6003}) expected[at] = 0;
  const PartNumbers found = flush_subnormals(part, std::as_writable_bytes(std::span(state)));
  EXPECT_TRUE(found.finite);
  EXPECT_EQ(found.subnormal, 5);
  EXPECT_EQ(state, expected);
  for (const uint16_t wrong : {0x7f80, 0xff80, 0x7fc0}) {
    state[5000] = wrong;
    EXPECT_FALSE(flush_subnormals(part, std::as_writable_bytes(std::span(state))).finite);
  }
}

}  // namespace
}  // namespace runnel
