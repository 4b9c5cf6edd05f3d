// The whole network in one kernel, on the host: its bits equal those of a kernel per operation, for
// any shape of the clusters, batch, slots, number of steps and form of the state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/whole_launch.h"
#include "tests/kernels/host_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/model_harness.h"
#include "tests/models/recording_backend.h"

namespace runnel {
namespace {

using cuda::ThreadOrder;

constexpr ModelLimits kWholeLimits = {
    .slots = 40, .rows = 40, .values = 64, .steps = 5, .recent = 5};

// The sizes of the shipped models. With those of "copy", chunks and heads do not fill all blocks.
Spec image_spec() {
  Spec spec = small_image_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  spec.image.reset();
  spec.positions = 400;
  sizes.width = 128;
  sizes.value_width = 40;
  sizes.heads = 4;
  sizes.query_size = sizes.value_size = 32;
  sizes.ffn = 512;
  return spec;
}
Spec symbol_spec() {
  Spec spec = small_symbol_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  sizes.layers = 3;
  sizes.width = sizes.value_width = 96;
  sizes.heads = 3;
  sizes.query_size = sizes.value_size = 32;
  sizes.ffn = 384;
  sizes.final_norm = false;
  return spec;
}
Spec plain_spec() {
  Spec spec = symbol_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  sizes.layers = 1;
  sizes.width = sizes.value_width = 128;
  sizes.heads = 4;
  sizes.ffn = 512;
  sizes.position = PositionKind::kNone;
  sizes.activation = Activation::kRelu;
  sizes.final_norm = true;
  return spec;
}
// The paper's model with one layer.
Spec paper_spec() {
  Spec spec = image_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  sizes.layers = 1;
  sizes.width = 256;
  sizes.value_width = 128;
  sizes.heads = 8;
  sizes.ffn = 1024;
  spec.head.components = 10;
  return spec;
}

// A predictor of twelve tiles, which move to other blocks from round to round.
Spec wide_spec() {
  Spec spec = paper_spec();
  spec.head.components = 30;
  return spec;
}

std::unique_ptr<Model> model_on(Backend& backend, const Spec& spec) {
  auto made = make_model(random_bundle(spec, 5), backend, kWholeLimits, Precision::kBf16);
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

Control control_of(SlotId slot) {
  Control control;
  control.seed = 7 * static_cast<uint64_t>(slot) + 1;
  control.stream = static_cast<uint32_t>(slot % 3);
  control.pending = slot * 5 % 11;
  control.remaining = slot % 4 == 1 ? slot / 4 + 1 : 100;  // some stop before the others
  control.sampling.temperature = slot % 5 == 2 ? 0.5F : 1.0F;
  control.sampling.greedy = slot % 7 == 3;
  control.top_log_probs = slot % 3;
  return control;
}

// The result of a batch: the values emitted in `launches` launches and a step, and the states.
struct Outcome {
  std::vector<int64_t> emitted;
  std::vector<std::byte> held;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

void note(const Emitted& at, std::vector<int64_t>& to) {
  int32_t bits = 0;
  std::memcpy(&bits, &at.log_prob, 4);
  to.insert(to.end(), {at.row, at.value, at.position, bits, std::ssize(at.top)});
  for (const TopLogProb& top : at.top) {
    std::memcpy(&bits, &top.log_prob, 4);
    to.insert(to.end(), {top.value, bits});
  }
}

Outcome run(Model& model, const std::vector<SlotId>& slots, int steps, int launches) {
  std::vector<Row> rows;
  for (const SlotId slot : slots) {
    model.set(slot, control_of(slot), true);
    rows.push_back({slot, {}, Want::kNext});
  }
  Outcome outcome;
  std::vector<Emitted> emitted;
  // One more step shows the position and the value at which the launches ended.
  for (int i = 0; i <= launches; ++i) {
    emitted.clear();
    finish(model, model.submit(rows, i < launches ? steps : 1), emitted);
    for (const Emitted& at : emitted) note(at, outcome.emitted);
  }
  for (const SlotId slot : slots) {
    std::vector<std::byte> bytes(model.layout().state_bytes);
    model.read(slot, 0, bytes);
    outcome.held.insert(outcome.held.end(), bytes.begin(), bytes.end());
  }
  return outcome;
}

std::vector<SlotId> some_slots(int count) {
  std::vector<SlotId> slots(kWholeLimits.slots);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(static_cast<uint32_t>(count)));
  slots.resize(count);
  return slots;
}

struct Case {
  const char* name;
  Spec (*spec)();
  int ranks, together;  // blocks of a tile, tiles of a cluster
  int rows;
  int steps;  // of a launch
  int launches;
  bool replay = false;

  CudaOptions options() const { return {.replay = replay, .cluster = ranks, .together = together}; }
  std::string label() const {
    return name + std::to_string(rows) + "By" + std::to_string(ranks) + "Times" +
           std::to_string(together) + (replay ? "Replay" : "");
  }
  friend void PrintTo(const Case& of, std::ostream* out) { *out << of.label(); }
};

class WholeModelTest : public testing::TestWithParam<Case> {
 protected:
  static void expect_the_bits_of_steps(Backend& by_steps, Backend& whole) {
    const Case& at = GetParam();
    const auto expected_of = model_on(by_steps, at.spec());
    const auto model = model_on(whole, at.spec());
    EXPECT_EQ(model->layout().numerics, expected_of->layout().numerics);
    const std::vector<SlotId> slots = some_slots(at.rows);
    const Outcome expected = run(*expected_of, slots, at.steps, at.launches);
    EXPECT_GE(expected.emitted.size(), slots.size());
    EXPECT_TRUE(run(*model, slots, at.steps, at.launches) == expected);
  }
};

TEST_P(WholeModelTest, HasTheBitsOfSteps) {
  const CudaOptions options = GetParam().options();
  const auto by_steps =
      cuda::make_host_backend({.replay = options.replay, .whole = false}, ThreadOrder::kShuffled);
  const auto whole = cuda::make_host_backend(options, ThreadOrder::kShuffled);
  expect_the_bits_of_steps(*by_steps, *whole);
}

TEST_P(WholeModelTest, HasTheBitsOfStepsOnTheGpu) {
  const CudaOptions options = GetParam().options();
  const auto by_steps = make_cuda_backend({.replay = options.replay, .whole = false});
  if (!by_steps.ok() && by_steps.status().code() == Code::kFailedPrecondition) {
    GTEST_SKIP() << by_steps.status().message();
  }
  const auto whole = make_cuda_backend(options);
  ASSERT_TRUE(by_steps.ok() && whole.ok());
  expect_the_bits_of_steps(**by_steps, **whole);
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.label(); }

INSTANTIATE_TEST_SUITE_P(
    , WholeModelTest,
    testing::Values(
        Case{"Image", image_spec, 1, 1, 17, 2, 2}, Case{"Image", image_spec, 2, 1, 9, 3, 1},
        Case{"Image", image_spec, 4, 1, 3, 2, 2}, Case{"Image", image_spec, 8, 2, 40, 2, 1},
        Case{"Image", image_spec, 16, 1, 1, 3, 2}, Case{"Image", image_spec, 2, 4, 23, 5, 3, true},
        Case{"Symbol", symbol_spec, 1, 1, 5, 3, 2}, Case{"Symbol", symbol_spec, 1, 2, 5, 3, 2},
        Case{"Symbol", symbol_spec, 4, 4, 17, 2, 1}, Case{"Symbol", symbol_spec, 16, 1, 16, 2, 1},
        Case{"Symbol", symbol_spec, 1, 16, 20, 3, 3, true},
        Case{"Plain", plain_spec, 2, 2, 40, 3, 1}, Case{"Plain", plain_spec, 8, 1, 3, 5, 1},
        Case{"Plain", plain_spec, 8, 1, 3, 5, 4, true}, Case{"Paper", paper_spec, 1, 1, 3, 1, 1},
        Case{"Paper", paper_spec, 2, 2, 35, 1, 1}, Case{"Paper", paper_spec, 16, 1, 2, 2, 1},
        Case{"Paper", paper_spec, 4, 4, 5, 5, 2, true}, Case{"Wide", wide_spec, 1, 2, 17, 2, 1}),
    case_name);

int batches_taken_whole(const Spec& spec, Precision precision, const CudaOptions& options) {
  const auto device = cuda::make_host_backend(options);
  RecordingBackend backend(*device);
  auto model = make_model(random_bundle(spec, 5), backend, kWholeLimits, precision);
  run(**model, {3}, 1, 1);
  return backend.whole_batches;
}

TEST(WholeModel, IsUsedOnlyForSizesThatFit) {
  for (const auto spec : {image_spec, symbol_spec, plain_spec}) {
    EXPECT_EQ(batches_taken_whole(spec(), Precision::kBf16, {}), 2);
    EXPECT_EQ(batches_taken_whole(spec(), Precision::kBf16, {.replay = true}), 2);
  }
  EXPECT_EQ(batches_taken_whole(image_spec(), Precision::kFp32, {}), 0);
  EXPECT_EQ(batches_taken_whole(image_spec(), Precision::kBf16, {.whole = false}), 0);
  EXPECT_EQ(batches_taken_whole(small_symbol_spec(), Precision::kBf16, {}), 0);
  Spec wide = plain_spec();
  sizes_of(wide).width = sizes_of(wide).value_width = 288;
  EXPECT_EQ(batches_taken_whole(wide, Precision::kBf16, {}), 0);
  Spec deep = plain_spec();
  sizes_of(deep).ffn = 544;
  EXPECT_EQ(batches_taken_whole(deep, Precision::kBf16, {}), 0);
}

// The outcome of slot 3 in a batch with slot 4, with or without penalties for slot 4, and the
// number of batches that the whole-model kernel ran.
std::pair<Outcome, int> beside_another(bool penalized) {
  const auto device = cuda::make_host_backend();
  RecordingBackend backend(*device);
  const auto model = model_on(backend, symbol_spec());
  for (const SlotId slot : {3, 4}) model->set(slot, control_of(slot), true);
  if (penalized) {
    const Penalties penalties = {.repetition = 1.8F, .logit_bias = {{4, 2.0F}}};
    model->penalize(4, {std::make_shared<const Penalties>(penalties), 1});
  }
  const std::vector<Row> rows = {{3, {}, Want::kNext}, {4, {}, Want::kNext}};
  std::vector<Emitted> emitted;
  for (int launch = 0; launch < 2; ++launch) finish(*model, model->submit(rows, 4), emitted);
  Outcome outcome;
  for (Emitted& at : emitted) {
    at.top = {};  // they are from the last launch only
    if (at.row == 0) note(at, outcome.emitted);
  }
  outcome.held = state_bytes(*model, 3);
  return {outcome, backend.whole_batches};
}

TEST(WholeModel, ABatchWithPenaltiesRunsByOperationsAndHasTheSameBits) {
  const auto [plain, whole] = beside_another(false);
  const auto [penalized, none] = beside_another(true);
  EXPECT_EQ(whole, 2);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(plain.emitted.size(), size_t{8 * 5});
  EXPECT_TRUE(penalized == plain);
}

TEST(WholeModel, ABatchTakesTheFastestClusters) {
  constexpr cuda::ClusterRooms kRooms = {132, 66, 33, 16, 8};
  constexpr cuda::WholeSizes kPaper = {256, 8, 1024};
  const auto expect = [&](const cuda::ClusterRooms& rooms, int rows, int64_t clusters, int ranks,
                          int together, int tile_rows) {
    const cuda::WholeShape shape = cuda::whole_shape(rows, {}, rooms, kPaper, {});
    EXPECT_EQ(shape.clusters, clusters) << rows;
    EXPECT_EQ(1 << shape.ranks_log, ranks) << rows;
    EXPECT_EQ(1 << shape.tiles_log, together) << rows;
    EXPECT_EQ(shape.tile_rows, tile_rows) << rows;
  };
  expect(kRooms, 1, 1, 16, 1, 1);
  expect(kRooms, 64, 8, 16, 1, 8);
  expect(kRooms, 65, 6, 16, 1, 11);
  expect(kRooms, 128, 8, 16, 1, 16);
  expect(kRooms, 129, 10, 8, 1, 13);
  expect(kRooms, 512, 16, 4, 2, 16);
  expect(kRooms, 1024, 32, 2, 2, 16);
  // With several turns of tiles, no block should wait for another.
  expect(kRooms, 5000, 193, 1, 2, 13);
  // There is one cluster too few for all at once, so smaller clusters are faster than two turns.
  expect({132, 66, 32, 15, 7}, 128, 8, 8, 1, 16);
  expect({132, 66, 32, 15, 7}, 256, 16, 4, 1, 16);
  const auto ranks = [&](int only, const cuda::ClusterRooms& rooms) {
    return 1 << cuda::whole_shape(1, {only, 0}, rooms, kPaper, {}).ranks_log;
  };
  EXPECT_EQ(ranks(0, {132, 0, 0, 0, 0}), 1);
  EXPECT_EQ(ranks(4, kRooms), 4);
  EXPECT_EQ(ranks(16, {132, 66, 33, 16, 0}), 8);  // no cluster of 16 fits
  EXPECT_EQ(cuda::whole_shape(64, {2, 8}, kRooms, kPaper, {}).cluster(), 16);
}

TEST(WholeModel, CostsDecideTheShape) {
  constexpr cuda::ClusterRooms kRooms = {132, 66, 33, 16, 8};
  const auto ranks = [&](const LayerCosts& costs) {
    return 1 << cuda::whole_shape(1, {}, kRooms, {256, 8, 1024}, costs).ranks_log;
  };
  EXPECT_EQ(ranks({}), 16);
  EXPECT_EQ(ranks({.meeting = 100'000}), 1);      // meetings cost more than they gain
  EXPECT_EQ(ranks({.cache_block = 100'000}), 1);  // one block alone gets all weights immediately
}

TEST(WholeModel, CostsDoNotChangeBits) {
  const std::vector<SlotId> slots = some_slots(5);
  const auto outcome = [&](const LayerCosts& costs) {
    const auto backend = cuda::make_host_backend({.costs = costs});
    return run(*model_on(*backend, plain_spec()), slots, 2, 1);
  };
  const Outcome expected = outcome({});
  EXPECT_GE(expected.emitted.size(), slots.size());
  EXPECT_TRUE(outcome({.meeting = 100'000}) == expected);
}

TEST(WholeModel, EveryRowHasATile) {
  for (const cuda::ClusterRooms& rooms :
       {cuda::ClusterRooms{132, 66, 33, 16, 8}, cuda::ClusterRooms{1, 0, 0, 0, 0}}) {
    for (int rows = 1; rows < 300; ++rows) {
      const cuda::WholeShape shape = cuda::whole_shape(rows, {}, rooms, {128, 4, 512}, {});
      const int64_t of_cluster = int64_t{shape.tile_rows} << shape.tiles_log;
      EXPECT_GE(shape.clusters * of_cluster, rows);
      EXPECT_LT((shape.clusters - 1) * of_cluster, rows);
      EXPECT_LE(shape.tile_rows, cuda::kTileRows);
    }
  }
}

}  // namespace
}  // namespace runnel
