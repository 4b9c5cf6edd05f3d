// Appends keys and values to a cache (Attention in backend.h). The cache is read in a separate
// launch, because blocks read entries that other blocks append.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/parts.h"
#include "kernels/device.h"

namespace runnel::cuda {

struct AttendArgs {
  Rows rows;
  int inputs;  // of all rows
  const Control* control;
  InputMatrix q, k, v;
  InputMatrix angles;  // data null: no rotation
  int rotated;         // the numbers of a head that are rotated
  int heads, kv_heads, dk, dv;
  float scale;
  Cache cache;
  int64_t key_bytes;  // of a page
  int64_t tiles;      // of queries (attend.h)
  int shares;         // the blocks that share the segments of a tile
  int segments;       // that the cache has room for
  float* sums;        // [inputs][heads][segments][dv + 2]; null if shares is 1
  float* out;
  int64_t out_stride;

  RUNNEL_DEVICE constexpr int group() const { return heads / kv_heads; }
};

// Numbers of a cache: fp32, or the bits of bf16.
RUNNEL_DEVICE constexpr float cached(float x) { return x; }
RUNNEL_DEVICE constexpr float cached(uint16_t x) { return bit_cast<float>(uint32_t{x} << 16); }
RUNNEL_DEVICE inline void put_cached(float x, float* to) { *to = x; }
RUNNEL_DEVICE inline void put_cached(float x, uint16_t* to) {
  *to = static_cast<uint16_t>(bf16_bits(x));
}

// One head's keys [dk][kPagePositions] and values [kPagePositions][dv] in a page of a slot.
template <typename Number>
struct HeadPage {
  Number *keys, *values;

  RUNNEL_DEVICE static HeadPage of(const AttendArgs& args, int32_t slot, int64_t page, int head) {
    const States& first = args.cache.first;
    std::byte* at =
        first.base + slot * first.slot_bytes + first.offset + page * args.cache.page_bytes;
    return {
        reinterpret_cast<Number*>(at) + int64_t{head} * args.dk * kPagePositions,
        reinterpret_cast<Number*>(at + args.key_bytes) + int64_t{head} * args.dv * kPagePositions};
  }
};

// The numbers of a head are divided into units. Each of the first rotated / 2 units is a point,
// numbers i and i + rotated / 2, which is rotated by an angle of the position. Each other unit is
// one number.
RUNNEL_DEVICE constexpr int units_of(const AttendArgs& args) { return args.dk - args.rotated / 2; }

// Calls put(i, number) for the numbers of a unit. `from`: the head's numbers.
template <typename Put>
RUNNEL_DEVICE void turn_unit(const AttendArgs& args, const float* from, int64_t position, int unit,
                             const Put& put) {
  const int half = args.rotated / 2;
  if (unit >= half) {
    put(half + unit, from[half + unit]);
    return;
  }
  const float* angles = args.angles.row(position);
  const float cosine = angles[unit];
  const float sine = angles[half + unit];
  const float low = from[unit];
  const float high = from[half + unit];
  put(unit, low * cosine - high * sine);
  put(half + unit, high * cosine + low * sine);
}

// A block appends 32 units of the keys, or 32 columns of the values, of one head and 32 inputs. The
// threads of a warp have adjacent positions of a key, or adjacent columns of a value, so that they
// write adjacent numbers.
template <typename Number>
struct AppendKernel {
  using Args = AttendArgs;
  static constexpr int kThreads = 128;
  static constexpr int kResident = 8;

  static constexpr Launch launch(const Args& args) {
    const int64_t tiles = (args.inputs + kWarp - 1) / kWarp;
    return {.blocks = tiles * args.kv_heads * parts_of(args), .shared_bytes = 0};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int parts = parts_of(args);
    const int64_t item = block.index() / parts;
    const auto part = static_cast<int>(block.index() % parts);
    const auto head = static_cast<int>(item % args.kv_heads);
    const auto first = static_cast<int>(item / args.kv_heads) * kWarp;
    if (part < key_parts(args)) {
      block.each(
          [&](int t) { append_keys(block, args, head, first + t % kWarp, part, t / kWarp); });
    } else {
      const int column = (part - key_parts(args)) * kWarp;
      block.each([&](int t) {
        RUNNEL_ROLL
        for (int i = t / kWarp; i < kWarp; i += kThreads / kWarp) {
          append_value(block, args, head, first + i, column + t % kWarp);
        }
      });
    }
  }

 private:
  RUNNEL_DEVICE static constexpr int key_parts(const Args& args) {
    return (units_of(args) + kWarp - 1) / kWarp;
  }
  RUNNEL_DEVICE static constexpr int parts_of(const Args& args) {
    return key_parts(args) + (args.dv + kWarp - 1) / kWarp;
  }

  // Where an input belongs. The slot is -1 if its row is frozen, or if there is no such input.
  struct Place {
    int32_t slot = -1;
    int64_t position = 0;
  };
  template <typename Block>
  RUNNEL_DEVICE static Place place_of(Block& block, const Args& args, int input) {
    if (input >= args.inputs) return {};
    const int row = row_of(args.rows.first, args.rows.count, input);
    const int32_t slot = args.rows.slot[row];
    if (slot < 0) return {};
    const int64_t position =
        args.control[slot].position + args.rows.first[0] + input - args.rows.first[row];
    block.require(position >= 0 && position < args.cache.positions,
                  "attend: positions of the cache");
    return {slot, position};
  }

  // Appends units `from`, `from` + 4, ... of a part of an input's key.
  template <typename Block>
  RUNNEL_DEVICE static void append_keys(Block& block, const Args& args, int head, int input,
                                        int part, int from) {
    const Place place = place_of(block, args, input);
    if (place.slot < 0) return;
    const auto page = HeadPage<Number>::of(args, place.slot, place.position / kPagePositions, head);
    Number* keys = page.keys + place.position % kPagePositions;
    const float* k = args.k.row(input) + int64_t{head} * args.dk;
    const int rest = units_of(args) - part * kWarp;
    const int units = rest < kWarp ? rest : kWarp;
    for (int unit = from; unit < units; unit += kThreads / kWarp) {
      turn_unit(args, k, place.position, part * kWarp + unit,
                [&](int i, float x) { put_cached(x, keys + int64_t{i} * kPagePositions); });
    }
  }
  template <typename Block>
  RUNNEL_DEVICE static void append_value(Block& block, const Args& args, int head, int input,
                                         int column) {
    if (column >= args.dv) return;
    const Place place = place_of(block, args, input);
    if (place.slot < 0) return;
    const auto page = HeadPage<Number>::of(args, place.slot, place.position / kPagePositions, head);
    put_cached(args.v.row(input)[int64_t{head} * args.dv + column],
               page.values + place.position % kPagePositions * args.dv + column);
  }
};

}  // namespace runnel::cuda
