// The whole network in one kernel: a cluster of blocks takes a tile of up to 16 rows through all
// layers and steps, sampling included. A block has a part of the outputs of every product, and some
// heads; what the others need of it lies in one piece, and goes 16 bytes at a time to the same
// place in their shared memory while they meet. The sums are those of the kernels that do one
// operation each, so the bits are, and a batch may go either way.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_norm.h"
#include "kernels/cuda/tile_product.h"
#include "kernels/cuda/tile_recur.h"
#include "kernels/device.h"

namespace runnel::cuda {

inline constexpr int kWholeLayers = 32;  // at most: they are arguments of the kernel

struct WholeWeight {
  const void* panels;
  const float* bias;
};
struct WholeNorm {
  const float* scale;  // null: none
  const float* shift;
};
struct WholeLayer {
  WholeWeight qkv, out, linear1, linear2;
  WholeNorm norm1, norm2;
};

struct WholeArgs {
  const int32_t* slot;  // [rows]
  int rows;
  int tile_rows;  // of each cluster
  int steps;
  int layers, width, heads, ffn;
  Activation activation;
  bool fp32_end;  // the last linear2 and the predictor are in fp32
  float attention_eps, norm_eps;
  Embedding embedding;
  Head head;
  WholeWeight predictor;
  WholeNorm final_norm;
  States states;
  int64_t layer_bytes;  // from one layer's states to the next one's
  Control* control;
  SampledTo to;
  int64_t to_stride;  // from one step's to the next one's
  WholeLayer layer[kWholeLayers];
};

template <typename Block>
class WholeRun {
 public:
  RUNNEL_DEVICE WholeRun(Block& block, const WholeArgs& args)
      : block_(block),
        args_(args),
        tile_(*block.template shared<Tile>()),
        rank_(block.rank()),
        ranks_(block.ranks()),
        first_(static_cast<int>(block.index() / block.ranks()) * args.tile_rows),
        rows_(args.rows - first_ < args.tile_rows ? args.rows - first_ : args.tile_rows),
        first_head_(args.heads * rank_ / ranks_),
        heads_(args.heads * (rank_ + 1) / ranks_ - first_head_),
        products_(block, tile_, rows_),
        recurrence_(block, tile_, rows_, first_head_, heads_, args.attention_eps, args.states),
        norm_(block, tile_, rows_, args.width, args.norm_eps) {}

  RUNNEL_DEVICE RUNNEL_INLINE void run() {
    block_.gather();
    begin();
    for (int step = 0; step < args_.steps; ++step) {
      block_.meet(step == 0 ? 0 : rows_ * 4, [](int) {});
      embed(step);
      for (int layer = 0; layer < args_.layers; ++layer) {
        attention(layer);
        feed_forward(layer);
      }
      predict();
      sample(step);
    }
  }

 private:
  // ---- the parts of the network that are this block's

  RUNNEL_DEVICE Share qkv(int layer) const {
    const WholeWeight& weight = args_.layer[layer].qkv;
    return share_of_heads(weight.panels, weight.bias, args_.width, args_.heads, rank_, ranks_);
  }
  RUNNEL_DEVICE Share out(int layer) const {
    return share(ProductForm::kNarrow, args_.layer[layer].out, args_.heads * kTileHeadSize,
                 args_.width);
  }
  RUNNEL_DEVICE Share linear1(int layer) const {
    const WholeWeight& weight = args_.layer[layer].linear1;
    return share_of(ProductForm::kNarrow, weight.panels, weight.bias, args_.width, args_.ffn, rank_,
                    ranks_, 2);  // the pairs of 16 columns lie together
  }
  RUNNEL_DEVICE Share linear2(int layer) const {
    return share(fp32(layer) ? ProductForm::kFp32 : ProductForm::kDeep, args_.layer[layer].linear2,
                 args_.ffn, args_.width);
  }
  RUNNEL_DEVICE Share predictor() const {
    return share(args_.fp32_end ? ProductForm::kFp32 : ProductForm::kNarrow, args_.predictor,
                 args_.width, args_.head.width());
  }
  RUNNEL_DEVICE Share share(ProductForm form, const WholeWeight& weight, int in, int out) const {
    return share_of(form, weight.panels, weight.bias, in, out, rank_, ranks_);
  }
  RUNNEL_DEVICE bool fp32(int layer) const { return args_.fp32_end && layer + 1 == args_.layers; }

  // What a layer begins with sets out: weights, and the states of the block's heads.
  RUNNEL_DEVICE void fetch_layer(int layer, int t) {
    products_.fetch(qkv(layer), t);
    recurrence_.fetch(layer * args_.layer_bytes, t);
  }

  // ---- a step

  RUNNEL_DEVICE bool live(int row) const { return tile_.value[row] != kFrozen; }

  RUNNEL_DEVICE void begin() {
    block_.phase([&](int t) {
      if (t >= kTileRows) return;
      const int32_t slot = t < rows_ ? args_.slot[first_ + t] : -1;
      tile_.slot[t] = slot;
      tile_.value[t] = slot < 0 ? kFrozen : args_.control[slot].pending;
      tile_.position[t] = slot < 0 ? 0 : args_.control[slot].position;
    });
  }

  RUNNEL_DEVICE void embed(int step) {
    block_.phase([&](int t) {
      constexpr int kAcross = kTileWidth / 2;  // threads of a row
      const int k = t % kAcross * 2;
      for (int row = t / kAcross; row < rows_; row += kTileThreads / kAcross) {
        if (k >= args_.width) continue;
        Two two{};
        if (live(row)) {
          const int64_t position = tile_.position[row] + step;
          require_known(block_, args_.embedding, tile_.value[row], position);
          two = {{embedded(args_.embedding, tile_.value[row], position, k),
                  embedded(args_.embedding, tile_.value[row], position, k + 1)}};
        }
        *reinterpret_cast<Two*>(tile_.x + row * args_.width + k) = two;
        tile_.x_pairs[tile_pair_index(row, k)] = block_.pack(two.at[0], two.at[1]);
      }
      fetch_layer(0, t);
    });
  }

  RUNNEL_DEVICE void attention(int layer) {
    products_.template run<2>(qkv(layer), tile_.x_pairs, Activation::kNone,
                              [&](int row, int column, Two two) {
                                const int stride = heads_ * 3 * kTileHeadSize;
                                *reinterpret_cast<Two*>(tile_.wide + row * stride + column) = two;
                              });
    block_.phase([](int) {});
    recurrence_.run(layer * args_.layer_bytes, [&](int row, int column, const Quad& y) {
      for (int i = 0; i < 4; i += 2) {
        tile_.attended[tile_pair_index(row, column + i)] = block_.pack(y.at[i], y.at[i + 1]);
      }
    });
    constexpr int kSteps = kTileHeadSize / kTileK;  // of a head
    block_.meet(bytes_of((args_.heads - heads_) * kSteps, lanes_of_pairs()), [&](int t) {
      send_pairs(tile_.attended, first_head_ * kSteps, (first_head_ + heads_) * kSteps, t);
      products_.fetch(out(layer), t);
    });
    products_.template run<2>(out(layer), tile_.attended, Activation::kNone, project());
    const WholeNorm& norm = args_.layer[layer].norm1;
    block_.meet(bytes_projected(out(layer)), [&](int t) {
      send_projected(out(layer), t);
      products_.fetch(linear1(layer), t);
      norm_.fetch(norm.scale, norm.shift, t);
    });
    norm_.run(true);
  }

  RUNNEL_DEVICE void feed_forward(int layer) {
    const bool in_fp32 = fp32(layer);
    products_.template run<2>(
        linear1(layer), tile_.x_pairs, args_.activation, [&](int row, int column, Two two) {
          if (in_fp32) {
            tile_.wide[column * kTileRows + row] = two.at[0];
            tile_.wide[(column + 1) * kTileRows + row] = two.at[1];
          } else {
            hidden_pairs()[tile_pair_index(row, column)] = block_.pack(two.at[0], two.at[1]);
          }
        });
    const Share own = linear1(layer);
    const int others = args_.ffn / kTileN - (own.end - own.begin);
    block_.meet(
        in_fp32 ? bytes_of(others, kTileN * quads()) : bytes_of(others / 2, lanes_of_pairs()),
        [&](int t) {
          if (in_fp32) {
            send_columns(own, t);
          } else {
            send_pairs(hidden_pairs(), own.begin / 2, own.end / 2, t);
          }
          products_.fetch(linear2(layer), t);
        });
    if (in_fp32) {
      products_.run_fp32(linear2(layer), tile_.wide, Activation::kNone, project());
    } else {
      products_.template run<8>(linear2(layer), hidden_pairs(), Activation::kNone, project());
    }
    const WholeNorm& norm = args_.layer[layer].norm2;
    block_.meet(bytes_projected(linear2(layer)), [&](int t) {
      send_projected(linear2(layer), t);
      norm_.fetch(norm.scale, norm.shift, t);
      if (layer + 1 < args_.layers) {
        fetch_layer(layer + 1, t);
      } else {
        products_.fetch(predictor(), t);
      }
    });
    norm_.run(true);
  }

  RUNNEL_DEVICE uint32_t* hidden_pairs() const { return reinterpret_cast<uint32_t*>(tile_.wide); }

  RUNNEL_DEVICE auto project() {
    return [this](int row, int column, Two two) {
      *reinterpret_cast<Two*>(tile_.projected + projected_index(row, column)) = two;
    };
  }

  // ---- what blocks send each other, in pieces of up to 16 bytes a lane

  // The bytes of `pieces` pieces that other blocks send, of `lanes` lanes each.
  RUNNEL_DEVICE static int bytes_of(int pieces, int lanes) { return pieces * lanes * 16; }

  // Sends the block's pieces [begin, end) to all others, a warp to a piece for one of them. A
  // lane's 16 bytes are at at(piece, lane); null: none.
  template <typename At>
  RUNNEL_DEVICE void send_pieces(int begin, int end, int t, const At& at) {
    const int at_once = ranks_ < kTileWarps ? ranks_ : kTileWarps;
    const int warp = t / kWarp;
    for (int to = warp % at_once; to < ranks_; to += at_once) {
      if (to == rank_) continue;
      for (int piece = begin + warp / at_once; piece < end; piece += kTileWarps / at_once) {
        auto* from = reinterpret_cast<Pairs*>(at(piece, t % kWarp));
        if (from != nullptr) block_.send(to, from, *from);
      }
    }
  }

  // Steps [begin, end) of pairs (tile_pair_index()): a lane has rows r and r + 8.
  RUNNEL_DEVICE void send_pairs(uint32_t* pairs, int begin, int end, int t) {
    send_pieces(begin, end, t, [&](int step, int lane) {
      return lane < lanes_of_pairs() ? pairs + (step * kWarp + lane) * 4 : nullptr;
    });
  }
  RUNNEL_DEVICE int lanes_of_pairs() const { return (rows_ < 8 ? rows_ : 8) * 4; }

  // The share's tiles of a projection, eight columns each.
  RUNNEL_DEVICE void send_projected(const Share& share, int t) {
    const int tiles = product_columns(share.form) / kTileN;
    send_pieces(share.begin * tiles, share.end * tiles, t, [&](int tile, int lane) {
      const int row = lane % kTileRows;
      float* from = tile_.projected + projected_index(row, tile * kTileN + lane / kTileRows * 4);
      return row < rows_ ? from : nullptr;
    });
  }
  RUNNEL_DEVICE int bytes_projected(const Share& share) const {
    const int own = (share.end - share.begin) * product_columns(share.form) / kTileN;
    return bytes_of(args_.width / kTileN - own, 2 * rows_);
  }

  // The share's tiles of the hidden layer in fp32: eight columns, four rows a lane.
  RUNNEL_DEVICE void send_columns(const Share& share, int t) {
    send_pieces(share.begin, share.end, t, [&](int tile, int lane) {
      float* from = tile_.wide + (tile * kTileN + lane / 4) * kTileRows + lane % 4 * 4;
      return lane % 4 < quads() ? from : nullptr;
    });
  }
  RUNNEL_DEVICE int quads() const { return (rows_ + 3) / 4; }

  // ---- the end of a step

  // A row's output goes to the block that samples it.
  RUNNEL_DEVICE void predict() {
    if (args_.final_norm.scale != nullptr) {
      block_.each([&](int t) { norm_.fetch(args_.final_norm.scale, args_.final_norm.shift, t); });
      norm_.run(false);
    }
    const auto to_owner = [&](int row, int column, Two two) {
      const int width = args_.head.width();
      for (int i = 0; i < 2 && column + i < width; ++i) {
        block_.send(row % ranks_, tile_.wide + row / ranks_ * width + column + i, two.at[i]);
      }
    };
    if (args_.fp32_end) {
      block_.phase([&](int t) {
        for (int i = t; i < rows_ * args_.width; i += kTileThreads) {
          tile_.projected[i % args_.width * kTileRows + i / args_.width] = tile_.x[i];
        }
      });
      products_.run_fp32(predictor(), tile_.projected, Activation::kNone, to_owner);
    } else {
      products_.template run<2>(predictor(), tile_.x_pairs, Activation::kNone, to_owner);
    }
    const int own = (rows_ - rank_ + ranks_ - 1) / ranks_;  // rows that the block samples
    block_.meet(own * args_.head.width() * 4, [](int) {});
  }

  RUNNEL_DEVICE void sample(int step) {
    const bool more = step + 1 < args_.steps;
    const SampledTo to = args_.to.from(step * args_.to_stride + first_);
    block_.each([&](int t) {
      if (t >= rows_ || t % ranks_ != rank_ || live(t)) return;
      to.rows[t].row = -1;
      for (int to = 0; more && to < ranks_; ++to) block_.send(to, tile_.value + t, kFrozen);
    });
    const int at_once = head_rows_at_once(args_.head);
    for (int first = rank_; first < rows_; first += ranks_ * at_once) {
      const auto job = [&](int i) {
        const bool wanted = first + i * ranks_ < rows_ && live(first + i * ranks_);
        const int row = wanted ? first + i * ranks_ : first;
        return RowJob{.head = tile_.wide + row / ranks_ * args_.head.width(),
                      .row = wanted ? first_ + row : -1,
                      .inputs = 1,
                      .control = args_.control + (wanted ? tile_.slot[row] : 0),
                      .to = to.from(row)};
      };
      sample_rows(block_, args_.head, job,
                  [&](int thread, const RowJob& of, int32_t value, bool last) {
                    if (!more || thread >= ranks_) return;
                    block_.send(thread, tile_.value + of.row - first_, last ? kFrozen : value);
                  });
      block_.phase([](int) {});
    }
  }

  Block& block_;
  const WholeArgs& args_;
  Tile& tile_;
  const int rank_, ranks_;
  const int first_, rows_;  // of the batch
  const int first_head_, heads_;
  TileProducts<Block> products_;
  TileRecurrence<Block> recurrence_;
  TileNorm<Block> norm_;
};

struct WholeKernel {
  using Args = WholeArgs;
  static constexpr int kThreads = kTileThreads;
  static constexpr int kResident = 1;

  static constexpr Launch launch(int64_t clusters, int64_t cluster) {
    return {.blocks = clusters * cluster, .shared_bytes = sizeof(Tile), .cluster = cluster};
  }

  template <typename Block>
  RUNNEL_DEVICE RUNNEL_INLINE static void run(Block& block, const Args& args) {
    WholeRun<Block> whole(block, args);
    whole.run();
  }
};

}  // namespace runnel::cuda
