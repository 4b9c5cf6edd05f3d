// The operations of one instruction set: a table of plain functions over plain pointers.
//
// The files isa_*.cc are compiled with their own flags. They include nothing with inline functions
// that could be emitted there, because the linker keeps one copy of such a function for the whole
// program, and it might keep a copy that this machine cannot run.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace runnel::cpu {

// A matrix of fp32, with `stride` elements from row to row.
struct Matrix {
  const float* data;
  int64_t stride;
};

// y [rows, out] = activation(x [rows, in] W^T + bias) * times + plus. A word of a panel is an fp32
// number, or two bf16 numbers that are adjacent in the direction of `in`, the first in the lower
// half. `panels` is [panel][words][panel width], zero padded.
struct MatmulArgs {
  const float* x;  // [rows, in] of fp32, or [rows, words] of pairs
  int64_t x_stride;
  const float* panels;
  const float* bias;  // fp32 [panels * panel width]
  // With int8: y = activation((x W^T) * scales + bias) * times + plus. `panels` is int8
  // [panel][inputs, padded to whole steps][panel width], and `room` has room for one panel in bf16.
  const float* scales;  // as bias
  float* room;
  StoredType blocks;  // with weights in blocks: their type (block_layout.h)
  int in, out;
  Activation activation;
  Matrix times, plus;  // [rows, out]; null: none; may be y
  float* y;
  int64_t y_stride;
};

// out [rows, width] = norm(x + residual), or norm(x) with a gate (NormGate). `residual` may be
// null. `out` may be x or the residual.
struct NormArgs {
  NormKind kind;
  int groups;  // equal parts of `width`
  Matrix x, residual;
  const float* scale;
  const float* shift;  // null for kRms
  float eps;
  int width;
  Matrix gate, plus;  // null: none
  Activation gate_with;
  bool gate_before;
  float* out;
  int64_t out_stride;
};

// The features of `blocks` queries and keys of each input (RandomFeatures). `out` must not overlap
// x.
struct FeatureArgs {
  FeatureMap map;
  Activation kernel;
  const float* x;  // [inputs, blocks * dk]
  int64_t x_stride;
  int blocks, dk;
  const float* omega;  // [dk, projections], without gaps between rows
  int projections, size;
  const float* sigma;  // [heads, dk]; null: none
  int64_t sigma_stride;
  int heads;
  float scale, constant, smoothing;
  float* out;  // [inputs, blocks * size]
  int64_t out_stride;
};

// The shift of one row: mixes of each of its `inputs` with the input before it. `state` [width] has
// the last input before the call, and is updated. `out` [inputs, mixes * width] may be x if there
// is one mix.
struct ShiftArgs {
  Matrix x, mu;
  int mixes, width, inputs;
  float* state;
  float* out;
  int64_t out_stride;
};

// The convolution of one row; `state` [taps - 1][channels]. `out` may be x.
struct ConvolveArgs {
  Matrix x, weight;
  const float* bias;  // null: none
  Activation activation;
  int taps, channels, inputs;
  float* state;
  float* out;
  int64_t out_stride;
};

// The maximum rows and columns of a head's state, because rules keep an input's terms on the stack.
// The rule kLinear has no such limit.
inline constexpr int kMostState = 1024;

// One head of one row: `inputs` steps of the recurrence over its state, S [dk][dv], followed by z
// [dk] for kLinear. Fields of other rules are null.
struct RecurArgs {
  Rule rule;
  Matrix q, k, v;  // [inputs, dk], [inputs, dk], [inputs, dv]
  FeatureMap map;  // not a random one
  Matrix gate;     // [inputs], before the sigmoid; null: none. kMamba1: [inputs, dv]
  int inputs;
  int dk, dv;
  float eps;
  float* state;
  const float* next;  // a state to prefetch, because it is needed soon
  float* out;         // [inputs, dv]
  int64_t out_stride;

  Matrix decay, rate;            // [inputs, dk]; kMamba2: decay [inputs]
  Matrix first, mix;             // [inputs, dv]; null: v is not mixed
  const float *k_k, *k_a, *r_k;  // [dk]
  float* bonus;                  // [inputs, dv]
  int64_t bonus_stride;
  float dt_rate, dt_bias, skip;
  float dt_least, dt_most;

  // Only for kMamba1: [dk][dv], [dv] and [dv]. Its `decay` is [inputs, dv].
  const float *rates, *biases, *skips;
  // kGated: decay is [inputs, dk], or [inputs] with decay_of_heads; rate is [inputs] or null.
  GatedTerms gated;
  const float *decay_rate, *decay_bias, *bonus_of;  // [dk]
  Matrix turn;                                      // [inputs, dk]
};

// The largest head size of queries, keys or values.
inline constexpr int kMostHeadSize = 512;

// One head of keys and values of one row, for append(), and the heads of queries that read it, for
// attend(). Query i belongs to input i / group, and to head i % group of these heads.
struct AttendArgs {
  Matrix q, k, v;  // [inputs, group * dk], [inputs, dk], [inputs, dv]
  int group;
  Matrix angles;  // [positions, rotated]; null: none
  int rotated;
  int inputs;
  int64_t position;  // of the first input
  int dk, dv;
  float scale;
  DType stored;
  std::byte *keys, *values;  // of the first page
  int64_t page_bytes;
  float* out;  // [inputs, group * dv]
  int64_t out_stride;
};

// The inputs of a step, in products that have the order of sums of AMX tiles (step32_inl.h).
// steps_of() is the number of steps.
inline constexpr int kStepInputs = 32;
constexpr int steps_of(int in) { return (in + kStepInputs - 1) / kStepInputs; }

using Matmul = void(const MatmulArgs& args, int rows, int panel_begin, int panel_end);

struct Kernels {
  int panel;  // columns of a panel
  // block_rows: the rows that a product computes together. run_inputs: the inputs of a run of rows,
  // which one thread computes through the whole network. Both are large enough to reuse each weight
  // that comes from the L3 cache or memory, and small enough to keep the activations in the L2
  // cache.
  int block_rows;
  int run_inputs;
  // The minimum inputs of a run of rows, and of one whose weights do not fit in the caches, so that
  // every run reads them from memory. With fewer, the threads share each operation instead.
  int fewest_run_inputs, fewest_far_inputs;
  // The longest task of a shared operation, in nanoseconds of vector arithmetic at 50 multiply-adds
  // each. It bounds how long threads wait for the last task.
  int64_t longest_task;

  // Panels [panel_begin, panel_end) of a matmul of `rows` rows, x and weights in fp32.
  Matmul* matmul;
  // The same with weights that are pairs of bf16, which are widened. The bits are those of
  // matmul().
  Matmul* matmul_widened;
  // Applies activation, factor and residual to a block of sums [rows][width] and stores the result
  // in columns [col, col + cols) of y.
  void (*end)(const MatmulArgs& args, const float* sums, int width, int row, int col, int rows,
              int cols);

  // Products of bf16. round_rows() rounds x to the form that matmul_rounded() needs for this number
  // of rows. It writes at most `in` numbers, padded to whole steps, for each row. If there are more
  // than 3 rows, it needs room for a multiple of 16 rows. In matmul_rounded(), args.x is this form,
  // and args.x_stride is (in + 1) / 2.
  void (*round_rows)(const float* x, int64_t x_stride, int rows, int in, float* to);
  Matmul* matmul_rounded;
  // Rounds x [count] to bf16, to nearest, as (count + 1) / 2 words.
  void (*round_pairs)(const float* x, int count, float* words);
  // The inputs of panels for matmul_rounded() are padded to a multiple of this: a pair or, with the
  // order of sums of AMX tiles, kStepInputs.
  int step;
  // The same for weights of int8, with the order of sums of AMX tiles. args.x_stride is ignored.
  void (*round_int8)(const float* x, int64_t x_stride, int rows, int in, float* to);
  Matmul* matmul_int8;
  // The same for weights in blocks. The inputs become integers (blocks_inl.h).
  void (*round_blocks)(const float* x, int64_t x_stride, int rows, int in, float* to);
  Matmul* matmul_blocks;

  void (*norm)(const NormArgs& args, int row_begin, int row_end);
  // Computes blocks [begin, end), counted over all inputs; each input has `args.blocks` blocks.
  void (*features)(const FeatureArgs& args, int64_t begin, int64_t end);
  // Compute columns [begin, end) of a row.
  void (*shift)(const ShiftArgs& args, int begin, int end);
  void (*convolve)(const ConvolveArgs& args, int begin, int end);
  void (*recur)(const RecurArgs& args);
  // Writes the keys and values of all inputs into the pages.
  void (*append)(const AttendArgs& args);
  // The outputs of queries [begin, end). The keys and values up to them must be in the pages.
  void (*attend)(const AttendArgs& args, int begin, int end);
  // out[i] = exp(min((x[i] - shift) * scale, 0)), or 0 if the exponent is below -87. `scale` > 0.
  void (*exp)(const float* x, int count, float shift, float scale, float* out);
  // out[i] = x[i] clamped to [-1e30, 1e30]; a NaN becomes -1e30. Returns the largest. count > 0.
  float (*finite)(const float* x, int count, float* out);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
// avx512_kernels(), but products with weights in blocks use the VNNI instruction for bytes.
const Kernels& avx512vnni_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& amx_kernels();

}  // namespace runnel::cpu
