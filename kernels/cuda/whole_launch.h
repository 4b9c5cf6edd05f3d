// Which networks the whole-model kernel can run, and how a batch is divided among clusters.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include "kernels/cuda/head.h"
#include "kernels/cuda/layer_costs.h"
#include "kernels/cuda/whole.h"
#include "kernels/fused_network.h"

namespace runnel::cuda {

// How many clusters of 1, 2, 4, 8 and 16 blocks the device runs at the same time. 0: it cannot run
// a cluster of this size.
using ClusterRooms = std::array<int64_t, 5>;
inline bool has_room(const ClusterRooms& rooms) {
  return std::any_of(rooms.begin(), rooms.end(), [](int64_t room) { return room > 0; });
}

struct WholeShape {
  int64_t clusters;
  int ranks_log;  // log2 of the blocks of a tile
  int tiles_log;  // log2 of the tiles of a cluster, which receive weights together
  int tile_rows;  // rows of a tile

  constexpr int64_t cluster() const { return int64_t{1} << (ranks_log + tiles_log); }
};

// Restricts the choice of a shape, unless the device cannot run any such shape. 0: no restriction.
struct WholeOnly {
  int ranks, tiles;
};

// The sizes that decide how long a layer takes.
struct WholeSizes {
  int width, heads, ffn;

  constexpr int64_t layer_weights() const {  // bytes, in bf16
    return 2 * int64_t{width} * (4 * heads * kTileHeadSize + 2 * ffn);
  }
};

// Estimates how many cycles a layer takes in clusters of this shape, while `at_once` clusters run.
// The estimate serves only to compare shapes. An H200 takes 1.5 to 3 times as long, but the shape
// that the estimate chooses was the fastest one there with 1, 64 and 1,024 rows
// (docs/benchmarks/gpu.md).
// - Products wait for weights from the cache. Its bandwidth is limited for each block, and for all
//   blocks together. The tiles of a cluster receive the same weights with one read.
// - The recurrence waits for states from memory, whose bandwidth is limited in the same way.
// - More blocks make neither LayerNorm nor the barriers of a cluster faster.
// - Tiles that receive weights together wait for each other.
constexpr int64_t layer_cycles(const WholeShape& shape, int64_t at_once, const WholeSizes& sizes,
                               const LayerCosts& costs) {
  constexpr int64_t kStateBytes = 2 * (kTileHeadSize + 1) * kTileHeadSize * 4;  // read and written
  const auto over = [](int64_t amount, int64_t per) { return (amount + per - 1) / per; };
  const int64_t ranks = int64_t{1} << shape.ranks_log;
  const int64_t meetings =
      4 * (ranks > 1 ? costs.meeting : costs.alone) + costs.wait * shape.tiles_log;
  const int64_t norms = 2 * costs.norm * over(shape.tile_rows, kTileWarps);
  const int64_t weights = sizes.layer_weights();
  const int64_t products = 4 * costs.product + std::max(weights / ranks / costs.cache_block,
                                                        at_once * weights / costs.cache);
  const int64_t tiles = at_once << shape.tiles_log;
  const int64_t states = shape.tile_rows * over(sizes.heads, ranks) * kStateBytes;
  const int64_t recurrence =
      std::max(states / costs.memory_block,
               tiles * shape.tile_rows * sizes.heads * kStateBytes / costs.memory);
  return meetings + norms + products + recurrence;
}

// Chooses the shape with the lowest estimate, among all clusters that the device can run and tiles
// of 1 to 16 rows. Clusters that the device cannot run at the same time run one after the other.
constexpr WholeShape whole_shape(int rows, const WholeOnly& only, const ClusterRooms& rooms,
                                 const WholeSizes& sizes, const LayerCosts& costs) {
  WholeShape best = {};
  int64_t least = INT64_MAX;
  const auto consider = [&](const WholeShape& shape, int64_t room) {
    const int64_t turns = (shape.clusters + room - 1) / room;
    const int64_t cycles =
        turns * layer_cycles(shape, std::min(shape.clusters, room), sizes, costs);
    if (cycles >= least) return;
    best = shape;
    least = cycles;
  };
  const auto consider_all = [&](const WholeOnly& wanted) {
    for (int size = 0; size < static_cast<int>(rooms.size()); ++size) {
      for (int tiles_log = 0; tiles_log <= size && rooms[size] > 0; ++tiles_log) {
        const int ranks_log = size - tiles_log;
        if (wanted.ranks > 0 && wanted.ranks != 1 << ranks_log) continue;
        if (wanted.tiles > 0 && wanted.tiles != 1 << tiles_log) continue;
        for (int tile_rows = std::min(rows, kTileRows); tile_rows > 0; --tile_rows) {
          const int64_t of_cluster = int64_t{tile_rows} << tiles_log;
          consider({(rows + of_cluster - 1) / of_cluster, ranks_log, tiles_log, tile_rows},
                   rooms[size]);
        }
      }
    }
  };
  consider_all(only);
  if (least == INT64_MAX) consider_all({});
  return best;
}

inline bool whole_fits(const Weight& weight, Precision precision, int in, int out) {
  return weight.precision == precision && weight.in == in && weight.out == out;
}

// Whether a kernel of these sizes can run the network. The weights must be in bf16, except for the
// last products of a mixture, which must be split.
template <typename Sizes>
bool whole_fits(const FusedNetwork& network) {
  const Recurrence& recurrence = network.recurrence;
  const auto layers = static_cast<int>(network.layers.size());
  const LinearTerms* const linear = recurrence.linear();
  if (network.embedding.scale != 1.0F) return false;
  if (network.activation > Activation::kGelu || linear == nullptr ||
      linear->map != FeatureMap::kElu || linear->gated || recurrence.dk != kTileHeadSize ||
      recurrence.dv != kTileHeadSize || recurrence.heads != Sizes::kHeads || layers < 1 ||
      layers > kWholeLayers) {
    return false;
  }
  if (network.head.kind != Sizes::kHead || network.head.width() > Sizes::kFfn ||
      head_shared_bytes(network.head) > int64_t{kTileScratch} * 4) {
    return false;
  }
  const Precision end =
      Sizes::kHead == HeadKind::kCategorical ? Precision::kBf16 : Precision::kSplit;
  for (int i = 0; i < layers; ++i) {
    const FusedNetwork::Layer& layer = network.layers[i];
    if (!whole_fits(*layer.qkv, Precision::kBf16, Sizes::kWidth, 3 * Sizes::kColumns) ||
        !whole_fits(*layer.out, Precision::kBf16, Sizes::kColumns, Sizes::kWidth) ||
        !whole_fits(*layer.linear1, Precision::kBf16, Sizes::kWidth, Sizes::kFfn) ||
        !whole_fits(*layer.linear2, i + 1 == layers ? end : Precision::kBf16, Sizes::kFfn,
                    Sizes::kWidth)) {
      return false;
    }
  }
  return whole_fits(*network.predictor, end, Sizes::kWidth, network.head.width()) &&
         network.layer_bytes % 16 == 0;
}

// The networks that have a kernel: the paper's models of images, and the models that ship with
// runnel. Other networks run operation by operation.
using WholeKernels = std::tuple<WholeKernel<256, 8, 1024, HeadKind::kMixtureOfLogistics>,
                                WholeKernel<128, 4, 512, HeadKind::kMixtureOfLogistics>,
                                WholeKernel<128, 4, 512, HeadKind::kCategorical>,
                                WholeKernel<96, 3, 384, HeadKind::kCategorical>>;
inline constexpr size_t kWholeKernels = std::tuple_size_v<WholeKernels>;

// Calls use.operator()<Kernel>(i) for each of these kernels.
template <typename Use>
void for_whole_kernels(const Use& use) {
  const auto each = [&]<size_t... i>(std::index_sequence<i...>) {
    (use.template operator()<std::tuple_element_t<i, WholeKernels>>(i), ...);
  };
  each(std::make_index_sequence<kWholeKernels>());
}

// The ClusterRooms of a device for each of these kernels.
using WholeRooms = std::array<ClusterRooms, kWholeKernels>;

template <typename Device>
WholeRooms whole_rooms(Device& device) {
  WholeRooms rooms;
  for_whole_kernels([&]<typename Kernel>(size_t i) {
    int64_t cluster = 1;
    for (int64_t& room : rooms[i]) {
      room = device.template room<Kernel>(Kernel::launch(1, cluster));
      cluster *= 2;
    }
  });
  return rooms;
}

// The arguments that are the same for every batch.
inline WholeArgs whole_args(const FusedNetwork& network) {
  const auto weight = [](const Weight& weight) { return weight.panels.data(); };
  const auto norm = [](const Norm& norm) {
    return norm.scale.data == nullptr ? WholeNorm{} : WholeNorm{norm.scale.f32(), norm.shift.f32()};
  };
  WholeArgs args{};
  args.layers = static_cast<int>(network.layers.size());
  args.activation = network.activation;
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
