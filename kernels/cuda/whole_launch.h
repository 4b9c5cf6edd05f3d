// Which networks the whole-model kernel takes, and how a batch is shared out to clusters.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cuda/head.h"
#include "kernels/cuda/whole.h"
#include "kernels/fused_network.h"

namespace runnel::cuda {

// Of 1, 2, 4, 8 and 16 blocks: how many clusters are at work at once; 0: the device has none such.
using ClusterRooms = std::array<int64_t, 5>;
inline constexpr int64_t kLargestCluster = 16;

struct WholeShape {
  int64_t clusters;
  int64_t cluster;  // blocks of each
  int tile_rows;    // rows of each
};

// The largest clusters with which all rows are at work at once: a row is stepped the faster the
// more blocks it has. Tiles are as small as the device has room for, down to half: smaller ones
// would only read the weights more often. `cluster`: 0, or the only size to be taken where the
// device has it.
constexpr WholeShape whole_shape(int rows, int64_t cluster, const ClusterRooms& rooms) {
  WholeShape shape = {0, 1, kTileRows};
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  int64_t size = kLargestCluster;
  for (size_t i = rooms.size(); i-- > 0; size /= 2) {
    const bool wanted = cluster == 0 ? tiles <= rooms[i] : size == cluster && rooms[i] > 0;
    if (!wanted) continue;
    const auto even = static_cast<int>((rows + rooms[i] - 1) / rooms[i]);
    shape.cluster = size;
    shape.tile_rows = std::clamp(even, kTileRows / 2, kTileRows);
    break;
  }
  shape.clusters = (rows + shape.tile_rows - 1) / shape.tile_rows;
  return shape;
}

inline bool whole_fits(const Weight& weight, Precision precision, int in, int out) {
  return weight.precision == precision && weight.in == in && weight.out == out;
}

// The paper's sizes and what is smaller, in bf16, with the last products in either precision.
inline bool whole_fits(const FusedNetwork& network) {
  const Recurrence& recurrence = network.recurrence;
  const auto layers = static_cast<int>(network.layers.size());
  const int heads = recurrence.heads * kTileHeadSize;
  const int width = network.width;
  if (network.activation > Activation::kGelu || recurrence.map != FeatureMap::kElu ||
      recurrence.gated || recurrence.dk != kTileHeadSize || recurrence.dv != kTileHeadSize ||
      heads > kTileWidth) {
    return false;
  }
  if (layers < 1 || layers > kWholeLayers || width % kChunkBf16 != 0 || width > kTileWidth) {
    return false;
  }
  const int ffn = network.layers[0].linear1->out;
  if (ffn % kChunkBf16 != 0 || ffn > kTileFfn || network.head.width() > kTileFfn ||
      head_shared_bytes(network.head) > kTileScratch * 4) {
    return false;
  }
  const Precision end = network.predictor->precision;
  for (int i = 0; i < layers; ++i) {
    const FusedNetwork::Layer& layer = network.layers[i];
    if (!whole_fits(*layer.qkv, Precision::kBf16, width, 3 * heads) ||
        !whole_fits(*layer.out, Precision::kBf16, heads, width) ||
        !whole_fits(*layer.linear1, Precision::kBf16, width, ffn) ||
        !whole_fits(*layer.linear2, i + 1 == layers ? end : Precision::kBf16, ffn, width)) {
      return false;
    }
  }
  return network.layer_bytes % 16 == 0;
}

// All but what differs from batch to batch.
inline WholeArgs whole_args(const FusedNetwork& network) {
  const auto weight = [](const Weight& weight) {
    return WholeWeight{weight.panels.data(), weight.bias.as<float>()};
  };
  const auto norm = [](const Norm& norm) {
    return norm.scale.data == nullptr ? WholeNorm{} : WholeNorm{norm.scale.f32(), norm.shift.f32()};
  };
  WholeArgs args{};
  args.layers = static_cast<int>(network.layers.size());
  args.width = network.width;
  args.heads = network.recurrence.heads;
  args.ffn = network.layers[0].linear1->out;
  args.activation = network.activation;
  args.fp32_end = network.predictor->precision == Precision::kFp32;
  args.attention_eps = network.recurrence.eps;
  args.norm_eps = network.layers[0].norm1.eps;
  args.embedding = network.embedding;
  args.head = network.head;
  args.predictor = weight(*network.predictor);
  args.final_norm = norm(network.final_norm);
  args.layer_bytes = network.layer_bytes;
  for (int i = 0; i < args.layers; ++i) {
    const FusedNetwork::Layer& layer = network.layers[i];
    args.layer[i] = {weight(*layer.qkv),     weight(*layer.out), weight(*layer.linear1),
                     weight(*layer.linear2), norm(layer.norm1),  norm(layer.norm2)};
  }
  return args;
}

}  // namespace runnel::cuda
