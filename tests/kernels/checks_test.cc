#include "kernels/checks.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/experts.h"

namespace runnel {
namespace {

// A view of memory that nobody reads: the checks read only shapes.
View shaped(int rows, int cols, DType type = DType::kF32) {
  static float unread[1];
  return {unread, type, rows, cols, cols};
}

TEST(ChecksDeathTest, AMatrixHasDataAndRowsThatDoNotOverlap) {
  check_matrix(shaped(2, 3), DType::kF32, "m");
  check_matrix(View{}, DType::kF32, "m");  // a matrix with no rows is valid
  EXPECT_DEATH(check_matrix(shaped(2, 3), DType::kI32, "m"), "m");
  EXPECT_DEATH(check_matrix({nullptr, DType::kF32, 1, 3, 3}, DType::kF32, "m"), "m");
  View narrow = shaped(2, 3);
  narrow.stride = 2;
  EXPECT_DEATH(check_matrix(narrow, DType::kF32, "m"), "m");
}

TEST(ChecksDeathTest, MemoryHasTheStatedSizes) {
  const float one = 1.0F;
  check_pack({&one, 2, 3}, {&one, 1, 2});
  check_pack({&one, 2, 3}, {});
  EXPECT_DEATH(check_pack({nullptr, 2, 3}, {}), "a weight has elements");
  EXPECT_DEATH(check_pack({&one, 0, 3}, {}), "a weight has elements");
  EXPECT_DEATH(check_pack({&one, 2, 3}, {&one, 1, 3}), "one element of fp32 per output");
  EXPECT_DEATH(check_pack({&one, 2, 3, DType::kI32}, {}), "fp32 or bf16");
  EXPECT_DEATH(check_pack({&one, 2, 3}, {&one, 1, 2, DType::kBF16}), "fp32 per output");
  check_copy({nullptr, 4}, {nullptr, 4});
  EXPECT_DEATH(check_copy({nullptr, 4}, {nullptr, 5}), "copy");
  EXPECT_DEATH(check_zero({nullptr, -1}), "zero");
}

TEST(ChecksDeathTest, AnEmbeddingIsAsWideAsItsParts) {
  int32_t slot[] = {0};
  const int32_t first[] = {0, 2};
  const Rows rows = {slot, first, 1};
  Embedding embedding = {.values = shaped(10, 4), .positions = shaped(8, 3)};
  embedding.position = PositionKind::kTable;
  embedding.position_width = 3;
  const View values = shaped(1, 2, DType::kI32);
  check_embed(rows, values, embedding, shaped(2, 7));
  EXPECT_DEATH(check_embed(rows, values, embedding, shaped(2, 6)), "as wide as values and");
  EXPECT_DEATH(check_embed(rows, values, embedding, shaped(3, 7)), "one row of out per value");
  EXPECT_DEATH(check_embed(rows.slice(0, 0), values, embedding, shaped(2, 7)), "rows' inputs");
  embedding.values.type = DType::kI32;
  EXPECT_DEATH(check_embed(rows, values, embedding, shaped(2, 7)), "fp32 or bf16");
  embedding.values.type = DType::kBF16;
  check_embed(rows, values, embedding, shaped(2, 7));
  embedding.combine = Combine::kAdd;
  EXPECT_DEATH(check_embed(rows, values, embedding, shaped(2, 4)), "as wide as values and");
  embedding.combine = Combine::kConcat;
  embedding.position_width = 2;
  EXPECT_DEATH(check_embed(rows, values, embedding, shaped(2, 6)), "position table");
}

TEST(ChecksDeathTest, LayersTakeOnlyTheirOwnShapes) {
  Weight weight;
  weight.in = 5;
  weight.out = 4;
  const End end = {Activation::kNone, shaped(2, 4), shaped(2, 4)};
  check_matmul(shaped(2, 5), weight, end, shaped(2, 4));
  check_matmul(shaped(3, 5), weight, Activation::kRelu, shaped(3, 4));
  EXPECT_DEATH(check_matmul(shaped(2, 6), weight, end, shaped(2, 4)), "matmul: x .n, in.");
  EXPECT_DEATH(check_matmul(shaped(2, 5), weight, end, shaped(2, 3)), "matmul: x .n, in.");
  EXPECT_DEATH(check_matmul(shaped(2, 5), weight, end, shaped(3, 4)), "matmul: x .n, in.");
  EXPECT_DEATH(check_matmul(shaped(3, 5), weight, end, shaped(3, 4)), "out's shape");
  Weight up;
  up.in = 5;
  up.out = 4;
  check_product({shaped(2, 5), &weight, Activation::kSilu, shaped(2, 4), &up});
  EXPECT_DEATH(check_product({shaped(2, 5), &weight, end, shaped(2, 4), &up}), "activation alone");
  up.in = 6;
  EXPECT_DEATH(check_product({shaped(2, 5), &weight, Activation::kSilu, shaped(2, 4), &up}),
               "two weights of one shape");
  const Norm norm = {shaped(1, 4), shaped(1, 4), 1e-5F};
  check_norm(shaped(2, 4), View{}, norm, shaped(2, 4));
  check_norm(shaped(2, 4), shaped(3, 4), norm, shaped(2, 4));
  EXPECT_DEATH(check_norm(shaped(2, 4), shaped(1, 4), norm, shaped(2, 4)), "residual");
  EXPECT_DEATH(check_norm(shaped(2, 4), View{}, norm, shaped(2, 5)), "one shape");
  EXPECT_DEATH(check_norm(shaped(2, 5), View{}, norm, shaped(2, 5)), "per column");
  const Norm rms = {shaped(1, 4), View{}, 1e-5F, NormKind::kRms, 2};
  check_norm(shaped(2, 4), View{}, rms, shaped(2, 4));
  const Norm uneven = {shaped(1, 4), View{}, 1e-5F, NormKind::kRms, 3};
  EXPECT_DEATH(check_norm(shaped(2, 4), View{}, uneven, shaped(2, 4)), "groups of one size");
  const NormGate added = {shaped(2, 4), Activation::kSilu, false, shaped(2, 4)};
  check_gated_norm(shaped(2, 4), rms, added, shaped(2, 4));
  const NormGate before = {shaped(2, 4), Activation::kSilu, true, shaped(2, 4)};
  EXPECT_DEATH(check_gated_norm(shaped(2, 4), rms, before, shaped(2, 4)), "comes after the norm");
  EXPECT_DEATH(check_gated_norm(shaped(2, 4), rms, {}, shaped(2, 4)), "a gate of x's shape");
}

TEST(ChecksDeathTest, ShiftsAndConvolutionsAreAsWideAsTheirInputs) {
  check_shift(shaped(5, 4), shaped(3, 4), shaped(5, 12));
  EXPECT_DEATH(check_shift(shaped(5, 4), shaped(3, 4), shaped(5, 8)), "mixes . width");
  EXPECT_DEATH(check_shift(shaped(5, 4), shaped(3, 5), shaped(5, 15)), "mixes . width");
  Convolution convolution = {shaped(4, 6), shaped(1, 6)};
  check_convolve(shaped(5, 6), convolution, shaped(5, 6));
  EXPECT_DEATH(check_convolve(shaped(5, 7), convolution, shaped(5, 7)), "taps, channels");
  convolution.bias = shaped(1, 5);
  EXPECT_DEATH(check_convolve(shaped(5, 6), convolution, shaped(5, 6)), "a bias per channel");
}

TEST(ChecksDeathTest, FeaturesComeInBlocks) {
  RandomFeatures features;
  features.map = FeatureMap::kGeneralized;
  features.count = 6;
  features.omega = shaped(4, 6);
  check_features(shaped(3, 8), features, shaped(3, 12));
  EXPECT_DEATH(check_features(shaped(3, 9), features, shaped(3, 12)), "blocks . dk");
  EXPECT_DEATH(check_features(shaped(3, 8), features, shaped(3, 13)), "blocks . dk");
  EXPECT_DEATH(check_features(shaped(3, 8), features, shaped(2, 12)), "a row per input");
  features.sigma = shaped(2, 3);
  EXPECT_DEATH(check_features(shaped(3, 8), features, shaped(3, 12)), "sigma");
  features.count = 5;
  EXPECT_DEATH(check_features(shaped(3, 8), features, shaped(3, 12)), "omega");
}

TEST(ChecksDeathTest, ARecurrenceGetsItsHeads) {
  Recurrence recurrence = {.heads = 2, .dk = 3, .dv = 5};
  RecurrenceInputs inputs = {.q = shaped(4, 6), .k = shaped(4, 6), .v = shaped(4, 10)};
  check_recur(recurrence, inputs, shaped(4, 10));
  EXPECT_DEATH(check_recur(recurrence, inputs, shaped(4, 11)), "heads . dv");
  EXPECT_DEATH(check_recur(recurrence, inputs, shaped(3, 10)), "a row per input");
  recurrence.terms = LinearTerms{.gated = true};
  EXPECT_DEATH(check_recur(recurrence, inputs, shaped(4, 10)), "a gate per input and head");
  inputs.gate = shaped(4, 2);
  check_recur(recurrence, inputs, shaped(4, 10));
  recurrence.terms = LinearTerms{.map = FeatureMap::kFavor};
  EXPECT_DEATH(check_recur(recurrence, inputs, shaped(4, 10)), "random features");
  recurrence.heads = 0;
  EXPECT_DEATH(check_recur(recurrence, inputs, shaped(4, 10)), "sizes");
}

TEST(ChecksDeathTest, ARuleGetsAllItsTensors) {
  RecurrenceInputs inputs = {.q = shaped(4, 6), .k = shaped(4, 6), .v = shaped(4, 10)};
  Recurrence rwkv7 = {.heads = 2, .dk = 3, .dv = 5, .terms = Rwkv7Terms{}};
  EXPECT_DEATH(check_recur(rwkv7, inputs, shaped(4, 10)), "k_k, k_a and r_k");
  rwkv7.terms = Rwkv7Terms{.k_k = shaped(1, 6), .k_a = shaped(1, 6), .r_k = shaped(1, 6)};
  EXPECT_DEATH(check_recur(rwkv7, inputs, shaped(4, 10)), "decay and rate");
  inputs.decay = inputs.rate = shaped(4, 6);
  EXPECT_DEATH(check_recur(rwkv7, inputs, shaped(4, 10)), "bonus");
  inputs.bonus = shaped(4, 10);
  check_recur(rwkv7, inputs, shaped(4, 10));
  inputs.mix = shaped(4, 10);
  EXPECT_DEATH(check_recur(rwkv7, inputs, shaped(4, 10)), "first and mix");

  Recurrence mamba2 = {.heads = 4, .key_heads = 2, .dk = 3, .dv = 5, .terms = Mamba2Terms{}};
  inputs.v = shaped(4, 20);
  EXPECT_DEATH(check_recur(mamba2, inputs, shaped(4, 20)), "dt_rate, dt_bias and skip");
  mamba2.terms =
      Mamba2Terms{.dt_rate = shaped(1, 4), .dt_bias = shaped(1, 4), .skip = shaped(1, 4)};
  EXPECT_DEATH(check_recur(mamba2, inputs, shaped(4, 20)), "decay .inputs, heads.");
  inputs.decay = shaped(4, 4);
  check_recur(mamba2, inputs, shaped(4, 20));
  mamba2.key_heads = 3;
  EXPECT_DEATH(check_recur(mamba2, inputs, shaped(4, 20)), "each group of keys");
}

TEST(ChecksDeathTest, Mamba1GetsAllItsTensors) {
  RecurrenceInputs inputs = {.q = shaped(4, 3), .k = shaped(4, 3), .v = shaped(4, 10)};
  Recurrence mamba1 = {.heads = 2, .key_heads = 1, .dk = 3, .dv = 5, .terms = Mamba1Terms{}};
  EXPECT_DEATH(check_recur(mamba1, inputs, shaped(4, 10)), "dt_rate .heads . dk, dv.");
  mamba1.terms =
      Mamba1Terms{.dt_rate = shaped(6, 5), .dt_bias = shaped(1, 10), .skip = shaped(1, 10)};
  inputs.decay = shaped(4, 10);
  EXPECT_DEATH(check_recur(mamba1, inputs, shaped(4, 10)), "decay and gate");
  inputs.gate = shaped(4, 10);
  check_recur(mamba1, inputs, shaped(4, 10));
  inputs.q = shaped(4, 6);
  EXPECT_DEATH(check_recur(mamba1, inputs, shaped(4, 10)), "q and k");
}

TEST(ChecksDeathTest, TheGatedFamilyGetsAllItsTensors) {
  const View out = shaped(4, 20);
  RecurrenceInputs inputs = {.q = shaped(4, 12), .k = shaped(4, 6), .v = shaped(4, 10)};
  const auto rule = [](const GatedTerms& terms) {
    return Recurrence{.heads = 4, .dk = 3, .dv = 5, .terms = terms};
  };
  check_recur(rule({}), inputs, out);
  EXPECT_DEATH(check_recur(rule({.decay_of_heads = true}), inputs, out), "decay for all heads");
  EXPECT_DEATH(check_recur(rule({.decay = DecayKind::kSigmoid}), inputs, out), "q, k and v");
  const GatedTerms decaying = {.decay = DecayKind::kSoftplus, .decay_of_heads = true};
  EXPECT_DEATH(check_recur(rule(decaying), inputs, out), "decay for all heads");
  inputs.decay = shaped(4, 4);
  EXPECT_DEATH(check_recur(rule({}), inputs, out), "decay for all heads");
  check_recur(rule(decaying), inputs, out);
  inputs.decay = shaped(4, 3);
  EXPECT_DEATH(check_recur(rule(decaying), inputs, out), "decay for all heads");
  inputs.decay = {};
  inputs.rate = shaped(4, 4);
  check_recur(rule({.delta = 1.0F}), inputs, out);
  EXPECT_DEATH(check_recur(rule({}), inputs, out), "a rate per input and head");
  inputs.rate = {};
  inputs.turn = shaped(4, 3);
  EXPECT_DEATH(check_recur(rule({}), inputs, out), "turn");
  inputs.turn = {};
  check_recur(rule({.bonus = shaped(1, 12)}), inputs, out);
  EXPECT_DEATH(check_recur(rule({.bonus = shaped(1, 4)}), inputs, out), "constants");
  EXPECT_DEATH(check_recur(rule({.delta = 1.0F, .bonus = shaped(1, 12)}), inputs, out),
               "a bonus or the delta rule");
}

TEST(ChecksDeathTest, AttentionGetsItsHeadsAndPages) {
  Attention attention = {.heads = 4, .kv_heads = 2, .dk = 6, .dv = 5};
  AttentionInputs inputs = {shaped(3, 24), shaped(3, 12), shaped(3, 10)};
  Cache cache = {{}, attention.page_bytes(), 100};
  const View out = shaped(3, 20);
  check_attend(attention, inputs, cache, out);
  EXPECT_DEATH(check_attend(attention, inputs, cache, shaped(3, 10)), "out .inputs, heads . dv.");
  EXPECT_DEATH(check_attend(attention, inputs, cache, shaped(2, 20)), "k and v");
  cache.page_bytes -= 1;
  EXPECT_DEATH(check_attend(attention, inputs, cache, out), "pages hold the layer's part");
  cache.page_bytes += 1;
  attention.angles = shaped(99, 6);
  EXPECT_DEATH(check_attend(attention, inputs, cache, out), "angles");
  attention.angles = shaped(100, 8);
  EXPECT_DEATH(check_attend(attention, inputs, cache, out), "angles");
  attention.angles = shaped(100, 6);
  check_attend(attention, inputs, cache, out);
  attention.stored = DType::kI8;
  EXPECT_DEATH(check_attend(attention, inputs, cache, out), "fp32 or bf16");
  attention.kv_heads = 3;
  EXPECT_DEATH(check_attend(attention, inputs, cache, out), "as many queries");
}

TEST(ChecksDeathTest, ExpertsGetARoomForTheirRows) {
  std::vector<Weight> up(3), down(3);
  for (int e = 0; e < 3; ++e) {
    up[e].in = down[e].out = 4;
    up[e].out = down[e].in = 5 + e;
  }
  Experts experts = {{}, up, down, Activation::kSilu, {.chosen = 2}};
  ExpertRoom room = {shaped(2, 2, DType::kI32), shaped(2, 2), shaped(2, 8), shaped(2, 14)};
  const View x = shaped(2, 4);
  check_experts(x, shaped(2, 3), experts, room, x);
  EXPECT_DEATH(check_experts(x, shaped(2, 4), experts, room, x), "scores .inputs, experts.");
  room.hidden = shaped(2, 10);
  EXPECT_DEATH(check_experts(x, shaped(2, 3), experts, room, x), "a row for each input");
  experts.gate = down;
  EXPECT_DEATH(check_experts(x, shaped(2, 3), experts, room, x), "gate and up");
  experts.gate = {};
  experts.router.chosen = 4;
  EXPECT_DEATH(check_experts(x, shaped(2, 3), experts, room, x), "of them are chosen");
}

TEST(ChecksDeathTest, AHeadIsAsWideAsItsKind) {
  const Head categorical = {.values = 7};
  check_head(categorical, shaped(2, 7));
  EXPECT_DEATH(check_head(categorical, shaped(2, 6)), "as wide as its kind");
  const Head mixture = {HeadKind::kMixtureOfLogistics, 200, 5};
  EXPECT_DEATH(check_head(mixture, shaped(2, 15)), "256 values");
  check_score(categorical, shaped(2, 7), shaped(1, 2, DType::kI32), shaped(1, 2));
  EXPECT_DEATH(check_score(categorical, shaped(2, 7), shaped(1, 2), shaped(1, 2)), "a target");
  EXPECT_DEATH(check_score(categorical, shaped(2, 7), shaped(1, 3, DType::kI32), shaped(1, 3)),
               "a target");
}

}  // namespace
}  // namespace runnel
