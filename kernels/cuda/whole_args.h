// The arguments of the kernel that computes the whole network (whole.h).
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/tile_recur.h"

namespace runnel::cuda {

// The maximum number of layers. It is limited because layers are arguments of the kernel.
inline constexpr int kWholeLayers = 32;

struct WholeNorm {
  const float* scale;  // null: none
  const float* shift;
};
struct WholeLayer {
  const void *qkv, *out, *linear1, *linear2;  // weights
  WholeNorm norm1, norm2;
};

struct WholeArgs {
  const int32_t* slot;  // [rows]
  int rows;
  int tile_rows;  // of each tile
  int ranks_log;  // a tile has 2^ranks_log blocks
  int steps;
  int layers;
  Activation activation;
  float norm_eps;
  Embedding embedding;
  Head head;
  const void* predictor;
  WholeNorm final_norm;
  TileStates states;
  int64_t layer_bytes;  // the distance between the states of two layers
  Control* control;
  SampledTo to;
  int64_t to_stride;  // the distance between the values of two steps
  Recent recent;
  // The last member: __builtin_clear_padding() (script.h) of GCC 12 counts padding that comes after
  // an array from the array's start.
  WholeLayer layer[kWholeLayers];
};

}  // namespace runnel::cuda
