// A model whose layers differ: the places of its states, that each operation uses its own state,
// and that slots and state files have all states. The network is made up of existing operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "models/matrix.h"
#include "models/recurrent_model.h"
#include "models/state/file.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr int kVocabulary = 7;
constexpr int kWidth = 12;
constexpr int kHeads = 3;  // of the layer with Mamba-2's rule

// Layers: a convolution; linear attention; no state; Mamba-2's rule and a convolution; RWKV-7's
// rule between two shifts.
std::vector<LayerStates> mixed_layers() {
  return {
      {ConvolutionState{"conv_inputs", 2, kWidth}},
      {Recurrence{.heads = 2, .dk = 2, .dv = 3, .terms = LinearTerms{}}},
      {},
      {Recurrence{.heads = kHeads, .key_heads = 1, .dk = 2, .dv = 2, .terms = Mamba2Terms{}},
       ConvolutionState{"conv_inputs", 1, kWidth}},
      {ShiftState{"time_input", kWidth},
       Recurrence{.heads = 1, .dk = 4, .dv = 4, .terms = Rwkv7Terms{}},
       ShiftState{"channel_input", kWidth}},
  };
}

class MixedNetwork final : public Network {
 public:
  MixedNetwork(Backend& backend, const StateLayout& layout, int inputs)
      : layers_(mixed_layers()), offsets_(layout.offsets) {
    const auto matrix = [&](int rows, int cols) {
      Matrix made = make_matrix(backend, DType::kF32, rows, cols, Memory::kDevice);
      for (int i = 0; i < rows * cols; ++i) {
        made.view.f32()[i] = std::sin(0.7F * static_cast<float>(++numbers_));
      }
      return made;
    };
    table_ = matrix(kVocabulary, kWidth);
    taps_ = matrix(3, kWidth);
    mu_ = matrix(1, kWidth);
    row_ = matrix(1, kWidth);
    x_ = matrix(inputs, kWidth);
    y_ = matrix(inputs, kWidth);
    bonus_ = matrix(inputs, 4);
    auto& mamba2 = std::get<Mamba2Terms>(std::get<Recurrence>(layers_[3][0]).terms);
    mamba2.dt_rate = mamba2.dt_bias = mamba2.skip = row_.view.columns(0, kHeads);
    auto& rwkv7 = std::get<Rwkv7Terms>(std::get<Recurrence>(layers_[4][1]).terms);
    rwkv7.k_k = rwkv7.k_a = rwkv7.r_k = row_.view.columns(0, 4);
  }

  void forward(const Run& run) const override {
    const View x = run.of(x_.view);
    Embedding embedding;
    embedding.values = table_.view;
    run.lane.embed(run.rows, run.values, run.control, embedding, x);
    run.lane.convolve(run.rows, x, {taps_.view, {}}, at(run, 0, 0), x);
    recur(run, 1, 0, {.q = x.columns(0, 4), .k = x.columns(4, 4), .v = x.columns(6, 6)});
    run.lane.convolve(run.rows, x, {taps_.view.top(2), {}}, at(run, 3, 1), x);
    recur(run, 3, 0,
          {.q = x.columns(0, 2),
           .k = x.columns(2, 2),
           .v = x.columns(4, 6),
           .decay = x.columns(9, kHeads)});
    run.lane.shift(run.rows, x, mu_.view, at(run, 4, 0), x);
    recur(run, 4, 1,
          {.q = x.columns(0, 4),
           .k = x.columns(4, 4),
           .v = x.columns(8, 4),
           .decay = x.columns(2, 4),
           .rate = x.columns(6, 4),
           .bonus = run.of(bonus_.view)});
    run.lane.shift(run.rows, x, mu_.view, at(run, 4, 2), x);
    for (int row = 0; row < run.read; ++row) {
      std::copy_n(x.f32(row), kVocabulary, run.head.f32(row));
    }
  }

 private:
  States at(const Run& run, int layer, int state) const {
    return run.states_at(offsets_[layer][state]);
  }
  // x += the outputs of the recurrence, in its first columns.
  void recur(const Run& run, int layer, int state, const RecurrenceInputs& inputs) const {
    const auto& recurrence = std::get<Recurrence>(layers_[layer][state]);
    const View x = run.of(x_.view);
    const View y = run.of(y_.view).columns(0, recurrence.heads * recurrence.dv);
    run.lane.recur(run.rows, run.control, recurrence, inputs, at(run, layer, state), y);
    for (int row = 0; row < y.rows; ++row) {
      for (int column = 0; column < y.cols; ++column) x.f32(row)[column] += y.f32(row)[column];
    }
  }

  std::vector<LayerStates> layers_;
  const std::vector<std::vector<int64_t>> offsets_;
  int numbers_ = 0;
  Matrix table_, taps_, mu_, row_, x_, y_, bonus_;
};

class MixedLayers : public testing::Test {
 protected:
  MixedLayers()
      : backend_(make_cpu_backend({.isa = {}, .threads = 1}).value()),
        layout_(lay_out(mixed_layers(), *backend_, "mixed", 0)) {
    spec_.name = "mixed";
    spec_.vocabulary = kVocabulary;
    spec_.head = {HeadKind::kCategorical, kVocabulary, 0};
    const ModelLimits limits = {.slots = 4, .rows = 4, .values = 32, .steps = 2};
    model_ =
        make_recurrent_model(spec_, *backend_, limits, layout_,
                             std::make_unique<MixedNetwork>(*backend_, layout_, limits.values));
  }

  // The state after these values. The last value is pending.
  std::vector<std::byte> state_after(SlotId slot, const std::vector<int32_t>& values, int chunk) {
    begin_sequence(*model_, slot, values[0]);
    feed(*model_, slot, {values.begin() + 1, values.end()}, chunk, Want::kNothing);
    return state_bytes(*model_, slot);
  }

  Spec spec_;
  std::unique_ptr<Backend> backend_;
  const StateLayout layout_;
  std::unique_ptr<Model> model_;
};

const std::vector<int32_t> kValues = {1, 4, 0, 6, 2, 5, 3, 3};

TEST_F(MixedLayers, EachStateHasItsOffsetAndItsParts) {
  // Floats: 2 * 12; 2 * (2 * 3 + 2); none; 3 * 2 * 2 and 12; 12, 4 * 4 and 12.
  const std::vector<std::vector<int64_t>> offsets = {
      {0}, {96}, {}, {96 + 64, 160 + 48}, {208 + 48, 256 + 48, 304 + 64}};
  EXPECT_EQ(layout_.offsets, offsets);
  EXPECT_EQ(layout_.state_bytes, 368 + 48);
  EXPECT_EQ(state_bytes_of(mixed_layers(), 0), layout_.state_bytes);
  std::vector<std::string> names;
  for (const StatePart& part : layout_.parts) names.push_back(part.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"layers.0.conv_inputs", "layers.1.S", "layers.1.z",
                                      "layers.3.S", "layers.3.conv_inputs", "layers.4.time_input",
                                      "layers.4.S", "layers.4.channel_input"}));
  expect_parts_tile_the_state(layout_);
  EXPECT_EQ(model_->layout().state_bytes, layout_.state_bytes);
  EXPECT_EQ(model_->layout().numerics, "mixed");
}

TEST_F(MixedLayers, EachOperationAdvancesItsOwnState) {
  const std::vector<std::byte> state = state_after(2, kValues, 32);
  for (const StatePart& part : layout_.parts) {
    for (int64_t entry = 0; entry < part.shape[0]; ++entry) {
      const auto* const at = state.data() + part.offset + entry * part.stride;
      EXPECT_TRUE(std::any_of(at, at + part.entry_bytes(),
                              [](std::byte byte) { return byte != std::byte{0}; }))
          << part.name << " " << entry;
    }
  }
  // Other slots and chunks do not matter: value by value, in another slot, the state is the same.
  EXPECT_EQ(state_after(0, kValues, 1), state);
  const std::vector<std::byte> other = state_after(1, {6, 6, 1}, 32);
  EXPECT_NE(other, state);
  EXPECT_EQ(state_bytes(*model_, 0), state);
  EXPECT_EQ(state_bytes(*model_, 2), state);
}

TEST_F(MixedLayers, SlotsAreCopiedAndClearedWhole) {
  const std::vector<std::byte> state = state_after(0, kValues, 32);
  model_->copy(0, 3, 0);
  EXPECT_EQ(state_bytes(*model_, 3), state);
  begin_sequence(*model_, 3, 1);
  EXPECT_EQ(state_bytes(*model_, 3), std::vector<std::byte>(state.size()));
}

TEST_F(MixedLayers, AStateFileHoldsTheStatesOfAllLayers) {
  const auto position = static_cast<int64_t>(kValues.size());
  const std::vector<std::byte> state = state_after(0, kValues, 32);
  const std::string digest(64, 'a');
  StateWriter writer(digest, layout_, {position, kValues.back(), state}, nullptr);
  std::string file;
  for (std::string piece = writer.next(100); !piece.empty(); piece = writer.next(100)) {
    file += piece;
  }
  StateReader reader(
      [&](const StateHeader& header) -> Result<StateLayout> {
        const Status status =
            check_state(header, {.spec = spec_, .layout = layout_, .model = digest});
        return status.ok() ? Result<StateLayout>(layout_) : Result<StateLayout>(status);
      },
      nullptr);
  ASSERT_TRUE(reader.add(std::as_bytes(std::span(file))).ok());
  const auto image = reader.finish();
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  EXPECT_EQ(reader.header()->parts.size(), layout_.parts.size());
  EXPECT_EQ(image->bytes, state);
  model_->write(1, 0, image->bytes);
  for (const SlotId slot : {0, 1}) {
    sample_from(*model_, slot, kValues.back(), position - 1, 42, 10);
  }
  EXPECT_EQ(generate(*model_, 0, 10), generate(*model_, 1, 10));
}

}  // namespace
}  // namespace runnel
