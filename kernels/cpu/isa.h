// The operations of one instruction set: a table of plain functions over plain pointers.
//
// The files isa_*.cc are compiled with flags of their own. They include nothing whose inline
// functions could be emitted there, because the linker keeps one copy of such a function for the
// whole program and might keep one that this machine cannot run.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace runnel::cpu {

// Of fp32, `stride` elements from row to row.
struct Matrix {
  const float* data;
  int64_t stride;
};

// y [rows, out] = activation(x [rows, in] W^T + bias) * times + plus. A word is an fp32 number, or
// two bf16 ones that follow each other in the direction of `in`, the first in the lower half.
// `panels` is [panel][words][panel width], zero padded.
struct MatmulArgs {
  const float* x;  // [rows, in] of fp32, or [rows, words] of pairs
  int64_t x_stride;
  const float* panels;
  const float* bias;  // fp32 [panels * panel width]
  // Of int8: y = activation((x W^T) * scales + bias) * times + plus, `panels` being int8
  // [panel][inputs, padded to whole steps][panel width], and room for one panel in bf16.
  const float* scales;  // as bias
  float* room;
  StoredType blocks;  // of weights in blocks, whose panels block_layout.h describes
  int in, out;
  Activation activation;
  Matrix times, plus;  // [rows, out]; null: left out; may be y
  float* y;
  int64_t y_stride;
};

// out [rows, width] = norm(x + residual), or norm(x) with a gate, as NormGate says. `residual` may
// be null; `out` may be x or the residual.
struct NormArgs {
  NormKind kind;
  int groups;  // equal ones of `width`
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

// The features of `blocks` queries and keys of each input, as RandomFeatures says; `out` does not
// overlap x.
struct FeatureArgs {
  FeatureMap map;
  Activation kernel;
  const float* x;  // [inputs, blocks * dk]
  int64_t x_stride;
  int blocks, dk;
  const float* omega;  // [dk, projections], with nothing between rows
  int projections, size;
  const float* sigma;  // [heads, dk]; null: none
  int64_t sigma_stride;
  int heads;
  float scale, constant, smoothing;
  float* out;  // [inputs, blocks * size]
  int64_t out_stride;
};

// The shift of one row: mixes of its `inputs` with what was before them, which `state` [width]
// begins and ends with. `out` [inputs, mixes * width] may be x where there is one mix.
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

// The most rows and columns of a head's state of a rule other than kLinear, which has no such
// limit: a rule keeps what it makes of an input on the stack.
inline constexpr int kMostState = 1024;

// One head of one row: `inputs` steps of the recurrence over its state, S [dk][dv] and, for
// kLinear, then z [dk]. What belongs to other rules is null.
struct RecurArgs {
  Rule rule;
  Matrix q, k, v;  // [inputs, dk], [inputs, dk], [inputs, dv]
  FeatureMap map;  // not a random one
  Matrix gate;     // [inputs], before the sigmoid; null: none. Of kMamba1: [inputs, dv]
  int inputs;
  int dk, dv;
  float eps;
  float* state;
  const float* next;  // a state that comes soon: is asked for ahead of its use
  float* out;         // [inputs, dv]
  int64_t out_stride;

  Matrix decay, rate;            // [inputs, dk]; kMamba2: decay [inputs]
  Matrix first, mix;             // [inputs, dv]; null: v as it is
  const float *k_k, *k_a, *r_k;  // [dk]
  float* bonus;                  // [inputs, dv]
  int64_t bonus_stride;
  float dt_rate, dt_bias, skip;
  float dt_least, dt_most;

  // kMamba1 uses these, of shapes [dk][dv], [dv] and [dv]. Its decay is [inputs, dv].
  const float *rates, *biases, *skips;
  // kGated: decay is [inputs, dk], or [inputs] with decay_of_heads; rate is [inputs] or null.
  GatedTerms gated;
  const float *decay_rate, *decay_bias, *bonus_of;  // [dk]
  Matrix turn;                                      // [inputs, dk]
};

// The most numbers of a head of queries, keys or values.
inline constexpr int kMostHeadSize = 512;

// One head of keys and values of one row, for append(), and the heads of queries that read it, for
// attend(): query i is of input i / group and of head i % group of them.
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

// Inputs of a step of the order of sums of tiles (step32_inl.h), and how many steps there are.
inline constexpr int kStepInputs = 32;
constexpr int steps_of(int in) { return (in + kStepInputs - 1) / kStepInputs; }

using Matmul = void(const MatmulArgs& args, int rows, int panel_begin, int panel_end);

struct Kernels {
  int panel;  // columns of a panel
  // Rows that a product takes together, and inputs of a run of rows that one thread takes through
  // all the network: enough to use each weight that comes from a far cache often, few enough for
  // the activations to stay near.
  int block_rows;
  int run_inputs;
  // A run of rows has so many inputs at least, where threads could share each operation instead.
  int fewest_run_inputs;
  // A task that is shared is so long at most, so that nobody waits long for the last one: in
  // nanoseconds of vectors, 50 multiply-adds each.
  int64_t longest_task;

  // Panels [panel_begin, panel_end) of a matmul of `rows` rows, x and weights in fp32.
  Matmul* matmul;
  // The same with weights that are pairs, widened: the bits of matmul().
  Matmul* matmul_widened;
  // Applies activation, factor and residual to a block of sums [rows][width] and stores the result
  // in columns [col, col + cols) of y.
  void (*end)(const MatmulArgs& args, const float* sums, int width, int row, int col, int rows,
              int cols);

  // Products of bf16: x rounded in the form that matmul_rounded() wants for so many rows, at most
  // `in` padded to whole steps numbers for each of them, or for each of 16 where there are more
  // than 3; and panels of a matmul whose args.x is that, with args.x_stride of (in + 1) / 2.
  void (*round_rows)(const float* x, int64_t x_stride, int rows, int in, float* to);
  Matmul* matmul_rounded;
  // x [count] rounded to bf16, to nearest, as (count + 1) / 2 words.
  void (*round_pairs)(const float* x, int count, float* words);
  // Inputs that panels for matmul_rounded() are padded to a multiple of: a pair, or kStepInputs
  // where sums are taken in the order of tiles.
  int step;
  // The same for weights of int8, in the order of sums of tiles: args.x_stride is not looked at.
  void (*round_int8)(const float* x, int64_t x_stride, int rows, int in, float* to);
  Matmul* matmul_int8;
  // The same for weights in blocks, whose inputs become integers (blocks_inl.h).
  void (*round_blocks)(const float* x, int64_t x_stride, int rows, int in, float* to);
  Matmul* matmul_blocks;

  void (*norm)(const NormArgs& args, int row_begin, int row_end);
  // Of blocks [begin, end) of all inputs, `args.blocks` an input.
  void (*features)(const FeatureArgs& args, int64_t begin, int64_t end);
  // Columns [begin, end) of a row.
  void (*shift)(const ShiftArgs& args, int begin, int end);
  void (*convolve)(const ConvolveArgs& args, int begin, int end);
  void (*recur)(const RecurArgs& args);
  // Writes the keys and values of all inputs into the pages.
  void (*append)(const AttendArgs& args);
  // Outputs of queries [begin, end), once the keys and values up to them are in the pages.
  void (*attend)(const AttendArgs& args, int begin, int end);
  // out[i] = exp(min((x[i] - shift) * scale, 0)); 0 where that is below -87. `scale` > 0.
  void (*exp)(const float* x, int count, float shift, float scale, float* out);
  // out[i] = x[i] within [-1e30, 1e30], -1e30 where it is not a number. Returns the largest; count
  // > 0.
  float (*finite)(const float* x, int count, float* out);
};

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
// The same, with products of weights in blocks by the instruction for bytes.
const Kernels& avx512vnni_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& amx_kernels();

}  // namespace runnel::cpu
