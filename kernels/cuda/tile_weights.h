// Copies the weights of a tile's products to shared memory. A block has a ring of slots, each for a
// part of a tile of eight outputs. When a slot has been read, it is refilled with the weights that
// are needed one ring later. They belong to the same product or to the next one, so weights also
// arrive during the meetings (barriers of the cluster) between products. Blocks that have the same
// share of the outputs, but different tiles of rows, are companions. They need the same weights at
// the same time, so each part is read from memory only once: the companions take turns, and one
// copies it to all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tile.h"
#include "kernels/device.h"

namespace runnel::cuda {

// The index of the block among the 2^log blocks of a tile.
struct Rank {
  int at = 0;
  int log = 0;

  RUNNEL_DEVICE constexpr int of() const { return 1 << log; }
  // The beginning, the end and the number of the block's share of `parts`.
  RUNNEL_DEVICE constexpr int first(int parts) const { return parts * at >> log; }
  RUNNEL_DEVICE constexpr int end(int parts) const { return parts * (at + 1) >> log; }
  RUNNEL_DEVICE constexpr int count(int parts) const { return end(parts) - first(parts); }
};

// The shape of a product with kIn inputs, whose weight has the layout of matmul.h. A tile takes
// kRounds slots, one after the other. The slots of a split weight alternate between its parts.
template <int in, bool split = false>
struct ProductShape {
  static constexpr int kIn = in;
  static constexpr bool kSplit = split;
  static constexpr int kParts = split ? 2 : 1;
  static constexpr int kChunks = in / kChunkBf16;
  static constexpr int kGroups =
      (kChunks + kSlotChunks - 1) / kSlotChunks;  // groups of chunks; a slot has one
  static constexpr int kRounds = kGroups * kParts;
  static constexpr int kSlotBytes = 4 * kChunkWords * kSlotChunks;
  static constexpr int kTileBytes = 4 * tile_words(kChunks, split);
  static_assert(in % kChunkBf16 == 0);
  static_assert(!split || (kSlotChunks == kSplitTogether && kChunks % kSlotChunks == 0));

  // The chunks of a group, from group * kSlotChunks on.
  RUNNEL_DEVICE static constexpr int chunks(int group) {
    const int left = kChunks - group * kSlotChunks;
    return kChunks % kSlotChunks == 0 || left > kSlotChunks ? kSlotChunks : left;
  }
  // Bytes of a round's slot.
  RUNNEL_DEVICE static constexpr int bytes(int round) {
    const int biases = round + 1 == kRounds ? 4 * kTileN : 0;
    return chunks(round / kParts) * 4 * kChunkWords + biases;
  }
};

// A block's share of a product: adjacent tiles of eight outputs.
template <int in, bool split = false>
struct Share : ProductShape<in, split> {
  const void* panels = nullptr;
  int begin = 0;
  int tiles = 0;

  // The index in the weight of the block's tile `j`.
  RUNNEL_DEVICE int tile(int j) const { return begin + j; }
};

// The block's share of queries, keys and values: the ones of its heads. Tiles are counted through
// the queries, keys and values of one head after the other.
template <int in, int heads>
struct HeadShare : ProductShape<in> {
  const void* panels = nullptr;
  int begin = 0;
  int tiles = 0;
  int first_head = 0;

  RUNNEL_DEVICE int tile(int j) const {
    constexpr int kTiles = kTileHeadSize / kTileN;
    const auto at = static_cast<unsigned>(j);
    return static_cast<int>(at / kTiles % 3 * heads + at / (3 * kTiles)) * kTiles +
           static_cast<int>(at % kTiles) + first_head * kTiles;
  }
};

// One of two kinds of share. The kernel decides at run time which one it is.
template <typename First, typename Second>
struct EitherShare {
  bool is_first;
  First first;
  Second second;
};
template <typename First, typename Second>
RUNNEL_DEVICE constexpr EitherShare<First, Second> either(bool is_first, const First& first,
                                                          const Second& second) {
  return {is_first, first, second};
}

// Block `rank`'s share of `out` outputs. Groups of `together` tiles are not divided.
template <int in, bool split = false>
RUNNEL_DEVICE constexpr Share<in, split> share_of(const void* panels, int out, Rank rank,
                                                  int together = 1) {
  const int parts = (out + kTileN * together - 1) / (kTileN * together);
  const int begin = rank.first(parts) * together;
  return {{}, panels, begin, rank.end(parts) * together - begin};
}
template <int in, int heads>
RUNNEL_DEVICE constexpr HeadShare<in, heads> share_of_heads(const void* panels, Rank rank) {
  constexpr int kTiles = 3 * (kTileHeadSize / kTileN);
  const int first = rank.first(heads);
  return {{}, panels, 0, rank.count(heads) * kTiles, first};
}

// The blocks of a cluster that have the same share, for different tiles of rows. Their ranks are
// 2^ranks_log apart.
struct Companions {
  int rank = 0;  // of this block in the cluster
  int ranks_log = 0;
  int of = 1;         // the number of companions; a power of two, at most kTileSlots
  unsigned mask = 0;  // the mask of their ranks; 0: this block has no companions

  RUNNEL_DEVICE static Companions of_rank(int rank, int ranks_log, int ranks) {
    Companions all = {rank, ranks_log, ranks >> ranks_log, 0};
    for (int i = 0; i < all.of && all.of > 1; ++i) all.mask |= 1U << all.at(i);
    return all;
  }
  // The rank of companion i.
  RUNNEL_DEVICE int at(int i) const { return (rank & ((1 << ranks_log) - 1)) + (i << ranks_log); }
};

// The number of tiles that are computed at the same time: two for each warp, its own and the one
// eight further.
inline constexpr int kTilesOfWarp = 2;
inline constexpr int kTilesAtOnce = kTilesOfWarp * kTileWarps;

// Slots are filled and used in the order of positions. Positions are counted over all products.
// Within a product, the order is by pass of kTilesAtOnce tiles, then by round, then by tile. The
// positions that are passed to the member functions are relative to the product's first position.
template <typename Block, typename Sizes>
class TileWeights {
 public:
  RUNNEL_DEVICE TileWeights(Block& block, Tile<Sizes>& tile, const Companions& companions)
      : block_(block), tile_(tile), companions_(companions) {}

  // To be called by all threads before gather().
  RUNNEL_DEVICE void prepare(int t) {
    if (t >= kTileSlots) return;
    block_.prepare(&tile_.filled[t], 1);
    block_.prepare(&tile_.free[t], companions_.of);
    tile_.inverse[t] = t == 0 ? 0 : 65535U / t + 1;
  }

  // Starts copies of the first product to all slots.
  template <typename Share>
  RUNNEL_DEVICE RUNNEL_INLINE void begin(const Share& first) {
    set_out(first, 0);
  }
  // Begins product `now`, and starts copies of `next` to the slots that `now` leaves free.
  template <typename Now, typename Next>
  RUNNEL_DEVICE RUNNEL_INLINE void turn_to(const Now& now, const Next& next) {
    set_out(next, positions(now));
  }
  // Ends product `now`.
  template <typename Now>
  RUNNEL_DEVICE void turn_from(const Now& now) {
    start_ += positions(now);
  }

  // The slot of a position. A thread may read it after await().
  RUNNEL_DEVICE const WeightSlot& slot(int at) const { return tile_.slots[slot_of(at)]; }
  RUNNEL_DEVICE void await(int at) { block_.await(&tile_.filled[slot_of(at)], turn_of(at) - 1); }

  // The copy that refills a slot after it has been read; bytes = 0: there is none.
  struct Fill {
    const std::byte* from = nullptr;
    int bytes = 0;
  };
  template <typename Now, typename Next>
  RUNNEL_DEVICE RUNNEL_INLINE Fill behind(const Now& now, const Next& next, int at) const {
    const int position = at + kTileSlots;
    const int of_next = position - positions(now);
    if (of_next < 0) return fill(now, position);
    return of_next < positions(next) ? fill(next, of_next) : Fill{};
  }
  // expect() announces that the slot is free, and fetch() starts the copy once all companions have
  // done so. One thread calls both, fetch() in a later phase.
  RUNNEL_DEVICE RUNNEL_INLINE void expect(const Fill& fill, int at) {
    if (fill.bytes == 0) return;
    const int slot = slot_of(at);
    block_.expect(&tile_.filled[slot], fill.bytes);
    if (companions_.mask != 0) [[unlikely]]
      block_.arrive(issuer(slot), &tile_.free[slot]);
  }
  RUNNEL_DEVICE RUNNEL_INLINE void fetch(const Fill& fill, int at) {
    if (fill.bytes == 0) return;
    const int slot = slot_of(at);
    if (companions_.mask != 0) [[unlikely]] {
      if (issuer(slot) != companions_.rank) return;
      block_.await(&tile_.free[slot], turn_of(at));
    }
    block_.fetch(&tile_.slots[slot], fill.from, fill.bytes, &tile_.filled[slot], companions_.mask);
  }

 private:
  template <typename Share>
  RUNNEL_DEVICE static int positions(const Share& share) {
    return share.tiles * Share::kRounds;
  }
  template <typename First, typename Second>
  RUNNEL_DEVICE static int positions(const EitherShare<First, Second>& share) {
    return share.is_first ? positions(share.first) : positions(share.second);
  }
  RUNNEL_DEVICE int slot_of(int at) const { return (start_ + at) & (kTileSlots - 1); }
  RUNNEL_DEVICE int turn_of(int at) const {
    return static_cast<int>(static_cast<unsigned>(start_ + at) / kTileSlots);
  }

  // i / tiles = i * inverse / 2^16, for i * tiles < 2^16 and tiles < kTilesAtOnce.
  RUNNEL_DEVICE unsigned inverse(unsigned tiles) const {
    static_assert(kTilesAtOnce <= kTileSlots);
    return tile_.inverse[tiles];
  }
  template <typename Share>
  RUNNEL_DEVICE RUNNEL_INLINE Fill fill(const Share& share, int position) const {
    constexpr unsigned kPass = kTilesAtOnce * Share::kRounds;
    const unsigned pass = static_cast<unsigned>(position) / kPass;
    const unsigned rest = static_cast<unsigned>(position) % kPass;
    const unsigned left = static_cast<unsigned>(share.tiles) - pass * kTilesAtOnce;
    unsigned tiles = kTilesAtOnce;
    unsigned round = rest / kTilesAtOnce;
    if (left < kTilesAtOnce) {
      tiles = left;
      round = rest * inverse(tiles) >> 16;
    }
    const int tile = share.tile(static_cast<int>(pass * kTilesAtOnce + rest - round * tiles));
    return {static_cast<const std::byte*>(share.panels) + tile * Share::kTileBytes +
                static_cast<int>(round) * Share::kSlotBytes,
            Share::bytes(static_cast<int>(round))};
  }

  template <typename First, typename Second>
  RUNNEL_DEVICE RUNNEL_INLINE Fill fill(const EitherShare<First, Second>& share,
                                        int position) const {
    return share.is_first ? fill(share.first, position) : fill(share.second, position);
  }

  // Starts copies of `next` to the free slots from position `from` on, a thread for each slot.
  template <typename Next>
  RUNNEL_DEVICE RUNNEL_INLINE void set_out(const Next& next, int from) {
    typename Block::template Each<Fill> fills;
    const auto slot = [&](int t) { return from + t / (kTileThreads / kTileSlots); };
    block_.each([&](int t) {
      const int at = slot(t) - from;
      if (t % (kTileThreads / kTileSlots) != 0 || at >= positions(next) || slot(t) >= kTileSlots) {
        return;
      }
      fills[t] = fill(next, at);
      expect(fills[t], slot(t) - kTileSlots);
    });
    block_.each([&](int t) { fetch(fills[t], slot(t) - kTileSlots); });
  }
  // The rank that starts the copies to a slot for all companions.
  RUNNEL_DEVICE int issuer(int slot) const { return companions_.at(slot & (companions_.of - 1)); }

  Block& block_;
  Tile<Sizes>& tile_;
  const Companions companions_;
  // The position of the product's first slot; the count starts at kTileSlots.
  int start_ = kTileSlots;
};

}  // namespace runnel::cuda
