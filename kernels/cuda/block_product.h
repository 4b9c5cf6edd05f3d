// Products with weights in blocks, by the rule of docs/decisions/blocks.md, with the same bits as
// on a CPU. A sum of 32 products is an exact integer, so any thread may compute it. These sums,
// times their scales, are the terms of an output. One thread adds them in ascending order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/device.h"
#include "kernels/stored_type.h"

namespace runnel::cuda {

// ---- arithmetic ---------------------------------------------------------------------------------

// A product and a sum that round to fp32. Denormals in their operands and results become zeros.
RUNNEL_DEVICE inline float flushed(float x) {
  return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
}
RUNNEL_DEVICE inline float flushed_product(float a, float b) {
#ifdef __CUDA_ARCH__
  float product;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
#else
  return flushed(flushed(a) * flushed(b));
#endif
}
RUNNEL_DEVICE inline float flushed_sum(float a, float b) {
#ifdef __CUDA_ARCH__
  float sum;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
#else
  return flushed(flushed(a) + flushed(b));
#endif
}

// sum + the products of four pairs of signed bytes.
RUNNEL_DEVICE inline int32_t dot_bytes(uint32_t a, uint32_t b, int32_t sum) {
#ifdef __CUDA_ARCH__
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
#else
  for (int shift = 0; shift < 32; shift += 8) {
    sum += int32_t{static_cast<int8_t>(a >> shift)} * static_cast<int8_t>(b >> shift);
  }
  return sum;
#endif
}

// Byte i of the result is byte number (index >> 4 * i & 7) of eight bytes: 0 to 3 are those of
// `lower`, and 4 to 7 those of `upper`.
RUNNEL_DEVICE inline uint32_t chosen_bytes(uint32_t lower, uint32_t upper, uint32_t index) {
#ifdef __CUDA_ARCH__
  return __byte_perm(lower, upper, index);
#else
  const uint64_t bytes = uint64_t{upper} << 32 | lower;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    chosen |= static_cast<uint32_t>(bytes >> (index >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return chosen;
#endif
}

// Four consecutive entries of kIq4NlValues as a word.
constexpr uint32_t iq4_nl_word(int first) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= uint32_t{static_cast<uint8_t>(kIq4NlValues[first + i])} << 8 * i;
  }
  return word;
}
inline constexpr uint32_t kIq4NlFirst = iq4_nl_word(0), kIq4NlSecond = iq4_nl_word(4),
                          kIq4NlThird = iq4_nl_word(8), kIq4NlFourth = iq4_nl_word(12);

// The index of each byte in kIq4NlValues, if it has one.
inline constexpr std::array<uint8_t, 256> kIq4NlIndices = [] {
  std::array<uint8_t, 256> indices{};
  for (uint8_t i = 0; i < 16; ++i) indices[static_cast<uint8_t>(kIq4NlValues[i])] = i;
  return indices;
}();

// Looks up four indices, one a byte, in kIq4NlValues.
RUNNEL_DEVICE inline uint32_t iq4_nl_values(uint32_t indices) {
  const uint32_t low_bits = indices & 0x07070707;
  const uint32_t pairs = (low_bits | low_bits >> 4) & 0x00ff00ff;
  const uint32_t choice = (pairs | pairs >> 8) & 0xffff;
  const uint32_t is_upper = (indices >> 3 & 0x01010101) * 0xff;
  return (chosen_bytes(kIq4NlFirst, kIq4NlSecond, choice) & ~is_upper) |
         (chosen_bytes(kIq4NlThird, kIq4NlFourth, choice) & is_upper);
}

RUNNEL_DEVICE inline float widened_half(uint16_t bits) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
  return wide;
#else
  return widened_f16(bits);
#endif
}

// ---- the layout of a weight ---------------------------------------------------------------------

inline constexpr int kGroupRuns = 4;  // a warp's lanes: 4 runs of 8 outputs

// How a type of blocks is stored. A weight is a list of tiles of 8 outputs, and a tile a list of
// groups of 4 runs, filled up with zeros. In a group, lane 8 r + n has run r of output n:
// - With nibbles, 16 bytes for each lane: the run's nibbles as on a CPU
//   (kernels/cpu/block_layout.h), which are integers plus `offset`, or indices in kIq4NlValues.
//   Without nibbles, 16 bytes for each lane with the first 16 integers of its run, and then 16
//   bytes for each lane with the last 16.
// - If a block is one run, an fp16 scale for each lane. If it is 8 runs, two bytes for each lane:
//   the run's factor, and its factor of the minimum or of the last 16 weights. Each kind of factors
//   is together. Then follow the fp16 numbers d of the outputs, and with minimums also dmin.
struct BlockForm {
  bool nibbles, table, minimum, halves;
  int offset;

  RUNNEL_DEVICE static constexpr BlockForm of(StoredType type) {
    const bool is_q4_0 = type == StoredType::kQ4_0, is_table = type == StoredType::kIq4Nl;
    const bool is_q4_k = type == StoredType::kQ4K;
    return {.nibbles = is_q4_0 || is_table || is_q4_k,
            .table = is_table,
            .minimum = is_q4_k || type == StoredType::kQ5K,
            .halves = type == StoredType::kQ6K,
            .offset = is_q4_0 ? 8 : 0};
  }
  RUNNEL_DEVICE constexpr bool has_factors() const { return minimum || halves; }
  RUNNEL_DEVICE constexpr int words_bytes() const { return nibbles ? kWarp * 16 : kWarp * 32; }
  RUNNEL_DEVICE constexpr int group_bytes() const {
    if (!has_factors()) return words_bytes() + kWarp * 2;
    return words_bytes() + kWarp * 2 + kTileN * (minimum ? 4 : 2);
  }
};

RUNNEL_DEVICE constexpr int groups_of(int in) { return (in / kRun + kGroupRuns - 1) / kGroupRuns; }
RUNNEL_DEVICE constexpr int64_t tile_bytes(const BlockForm& form, int in) {
  return int64_t{groups_of(in)} * form.group_bytes();
}

// Writes a run of 32 integers of lane `lane` into its group.
inline void put_integers(const BlockForm& form, const BlockRun& run, int lane, std::byte* group) {
  std::byte* const to = group + lane * 16;
  if (!form.nibbles) {
    std::memcpy(to, run.q.data(), 16);
    std::memcpy(to + kWarp * 16, run.q.data() + 16, 16);
    return;
  }
  const auto nibble = [&](int i) {
    if (!form.table) return run.q[i] + form.offset;
    return int{kIq4NlIndices[static_cast<uint8_t>(run.q[i])]};
  };
  for (int i = 0; i < 16; ++i) {
    const int first = i / 4 * 8 + i % 4;
    to[i] = static_cast<std::byte>(nibble(first) | nibble(first + 4) << 4);
  }
}

// Writes one run of output `out` of a weight into the panels. `block` is the block of the file that
// has this run.
inline void put_run(StoredType type, const std::byte* block, const BlockRun& run, int out,
                    int index, int in, std::byte* panels) {
  const BlockForm form = BlockForm::of(type);
  const int lane = index % kGroupRuns * kTileN + out % kTileN;
  std::byte* const group = panels + out / kTileN * tile_bytes(form, in) +
                           int64_t{index / kGroupRuns} * form.group_bytes();
  put_integers(form, run, lane, group);
  std::byte* const scales = group + form.words_bytes();
  const std::byte* const d = form.halves ? block + 208 : block;
  if (!form.has_factors()) {
    std::memcpy(scales + 2 * lane, d, 2);
    return;
  }
  scales[lane] = static_cast<std::byte>(run.factors[0]);
  scales[kWarp + lane] = static_cast<std::byte>(form.minimum ? run.least_factor : run.factors[1]);
  std::byte* const numbers = scales + 2 * kWarp + out % kTileN * 2;
  std::memcpy(numbers, d, 2);
  if (form.minimum) std::memcpy(numbers + 2 * kTileN, block + 2, 2);
}

// A weight in blocks as tiles.
inline std::vector<uint32_t> block_tiles(HostTensor weight) {
  const StoredFormat& format = format_of(weight.stored);
  const int tiles = (weight.rows + kTileN - 1) / kTileN;
  std::vector<uint32_t> panels(tiles * tile_bytes(BlockForm::of(weight.stored), weight.cols) / 4);
  const auto* const data = static_cast<const std::byte*>(weight.data);
  const int runs = weight.cols / kRun;
  const int64_t runs_of_block = format.elements / kRun;
  for (int out = 0; out < weight.rows; ++out) {
    for (int index = 0; index < runs; ++index) {
      const int64_t run = int64_t{out} * runs + index;
      put_run(weight.stored, data + run / runs_of_block * format.bytes,
              block_run(weight.stored, data, run), out, index, weight.cols,
              reinterpret_cast<std::byte*>(panels.data()));
    }
  }
  return panels;
}

// ---- the kernel ---------------------------------------------------------------------------------

// A run of a row's inputs as integers v = 256 * upper + lower.
struct alignas(16) RunInputs {
  float power = 0.0F;
  float sum = 0.0F;               // of v, times the power
  int32_t first = 0, latter = 0;  // the sums of the first 16 v and of the last 16
  Pairs words[4] = {};  // for each 4 inputs a word of lower bytes, then one of upper bytes
};

// A block computes kRows rows by kTiles tiles of 8 outputs, in chunks of kRuns runs.
template <int kRows, int kTiles>
struct BlockProduct {
  using Args = MatmulArgs;
  static constexpr int kThreads = kMatmulWarps * kWarp;
  static constexpr int kResident = kTiles == 1 ? 4 : 3;
  static constexpr int kOuts = kTiles * kTileN;
  static constexpr int kRuns = kRows == 1 ? 64 : kTiles == 1 ? 32 : 16;

  static constexpr Launch launch(const Args& args) {
    const int64_t columns = (args.out + kOuts - 1) / kOuts;
    return {.blocks = columns * ((args.rows + kRows - 1) / kRows),
            .shared_bytes = kRuns * kRows * int64_t{sizeof(RunInputs)} + kRuns * 2 * kTerm * 4};
  }

  // The blocks of the first rows bring the weights of all.
  template <typename Block>
  RUNNEL_DEVICE static void ahead(Block& block, const Args& args) {
    const int64_t tiles = (args.out + kTileN - 1) / kTileN;
    const int64_t first = block.index() * kTiles;
    const int64_t bytes = tile_bytes(BlockForm::of(args.blocks), args.in);
    if (first >= tiles || tiles * bytes > kMostPrefetched) return;
    const int64_t count = tiles - first < kTiles ? tiles - first : kTiles;
    block.prefetch(static_cast<const std::byte*>(args.panels) + first * bytes,
                   static_cast<uint32_t>(count * bytes));
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const int columns = (args.out + kOuts - 1) / kOuts;
    const int tile = static_cast<int>(block.index() % columns) * kTiles;
    const int row = static_cast<int>(block.index() / columns) * kRows;
    if (row >= args.rows) return;  // of an expert with fewer outputs than others
    const BlockForm form = BlockForm::of(args.blocks);
    auto* const inputs = block.template shared<RunInputs>();
    auto* const terms = reinterpret_cast<float*>(inputs + kRuns * kRows);
    const int parts = form.halves ? 2 : 1;
    const int runs = args.in / kRun;
    typename Block::template Each<Sums> c;
    for (int first = 0; first < runs; first += kRuns) {
      typename Block::template Each<Loads> loads;
      block.each([&](int t) { load(args, form, tile, first, t, loads[t]); });
      round_inputs(block, args, row, first, inputs);
      block.phase([&](int t) {
        multiply(args, form, row, groups_from(args, first), inputs, terms, t, loads[t]);
      });
      block.each([&](int t) {
        const int count = (runs - first < kRuns ? runs - first : kRuns) * parts;
        RUNNEL_UNROLL
        for (int i = 0; i < kSums; ++i) {
          const int at = i * kThreads + t;
          if (at >= kRows * kOuts) return;
          for (int term = 0; term < count; ++term) {
            c[t].at[i] = flushed_sum(c[t].at[i], terms[term * kTerm + at]);
          }
        }
      });
    }
    block.each([&](int t) {
      RUNNEL_UNROLL
      for (int i = 0; i < kSums; ++i) {
        const int at = i * kThreads + t;
        const int m = row + at / kOuts;
        const int n = tile * kTileN + at % kOuts;
        if (at >= kRows * kOuts || m >= args.rows || n >= args.out) return;
        args.y[m * args.y_stride + n] = args.end(m, n, flushed_sum(c[t].at[i], args.bias[n]));
      }
    });
  }

 private:
  static_assert(kThreads % kOuts == 0, "all sums of a thread belong to one output");
  static constexpr int kSums = (kRows * kOuts + kThreads - 1) / kThreads;  // of a thread
  // The distance between terms of the same output. The lanes of a warp write to different banks,
  // or with two terms for each run, two of them to each bank.
  static constexpr int kTerm = kRows * kOuts + (kRows > 1 ? kTileN : 0);
  // Four lanes convert a run. Inputs are loaded for several rounds at once.
  static constexpr int kLanes = 4;
  static constexpr int kOfLane = kRun / kLanes;
  static constexpr int kRounds = kRuns * kRows * kLanes / kThreads;
  static constexpr int kAhead = kRounds < 4 ? kRounds : 4;
  static constexpr int kGroups = kRuns / kGroupRuns / kMatmulWarps;  // of a warp in a chunk

  struct Sums {
    float at[kSums] = {};
  };
  struct alignas(16) Four {
    float at[4];
  };
  // A lane's part of a run of inputs.
  struct Part {
    Four x[kOfLane / 4];
    float most, sum;
  };
  struct Parts {
    Part at[kAhead];
  };
  // For each run that a lane helps to convert: the run's power, the sum of the 16 integers of the
  // half of the run to which the lane's inputs belong, and the sum of all 32 integers.
  struct Known {
    float power[kRounds], half[kRounds], all[kRounds];
  };

  // Converts a chunk of the inputs, as the rule says.
  template <typename Block>
  RUNNEL_DEVICE static void round_inputs(Block& block, const Args& args, int row, int first,
                                         RunInputs* inputs) {
    typename Block::template Each<Known> known;
    RUNNEL_UNROLL
    for (int begin = 0; begin < kRounds; begin += kAhead) {
      typename Block::template Each<Parts> parts;
      block.each([&](int t) {
        RUNNEL_UNROLL
        for (int i = 0; i < kAhead; ++i) load(args, row, first, begin + i, t, parts[t].at[i]);
      });
      RUNNEL_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        const int round = begin + i;
        const auto most = [&](int t) -> float& { return parts[t].at[i].most; };
        const auto half = [&](int t) -> float& { return known[t].half[round]; };
        const auto all = [&](int t) -> float& { return known[t].all[round]; };
        block.each([&](int t) { parts[t].at[i].most = largest(parts[t].at[i]); });
        block.fold_largest(most, 1);
        block.fold_largest(most, 2);
        block.each([&](int t) {
          Part& part = parts[t].at[i];
          known[t].power[round] = round_part(part, inputs[place(round, t)].words[t % kLanes]);
          known[t].half[round] = known[t].all[round] = part.sum;
        });
        block.fold(half, 1);
        block.fold(all, 1);
        block.fold(all, 2);
      }
    }
    block.phase([&](int t) {
      RUNNEL_UNROLL
      for (int round = 0; round < kRounds; ++round) {
        RunInputs& to = inputs[place(round, t)];
        const auto half = static_cast<int32_t>(known[t].half[round]);
        if (t % kLanes == 0) {
          to.power = known[t].power[round];
          to.sum = flushed_product(known[t].all[round], to.power);
          to.first = half;
        } else if (t % kLanes == kLanes / 2) {
          to.latter = half;
        }
      }
    });
  }

  // The index of a thread's run in a chunk: [row][run].
  RUNNEL_DEVICE static constexpr int place(int round, int t) {
    return (round * kThreads + t) / kLanes;
  }

  RUNNEL_DEVICE static void load(const Args& args, int row, int first, int round, int t,
                                 Part& part) {
    const int m = row + place(round, t) / kRuns;
    const int k = (first + place(round, t) % kRuns) * kRun + t % kLanes * kOfLane;
    if (m >= args.rows || k >= args.in) {
      part = {};
      return;
    }
    const float* const x = args.x + m * args.x_stride + k;
    if (args.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.x) % alignof(Four) == 0) {
      RUNNEL_UNROLL
      for (int i = 0; i < kOfLane / 4; ++i) part.x[i] = reinterpret_cast<const Four*>(x)[i];
      return;
    }
    RUNNEL_UNROLL
    for (int i = 0; i < kOfLane; ++i) part.x[i / 4].at[i % 4] = x[i];
  }

  // The largest absolute value of a lane's inputs. Infinity if one of them is infinite or a NaN.
  RUNNEL_DEVICE static float largest(const Part& part) {
    float most = 0.0F;
    RUNNEL_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      const float size = std::fabs(part.x[i / 4].at[i % 4]);
      most = size <= most ? most : size < INFINITY ? size : INFINITY;
    }
    return most;
  }

  // Converts a lane's inputs to integers. `part.most` is the largest absolute value of the run.
  // Sets `part.sum` to the sum of the lane's integers. Returns the run's power.
  RUNNEL_DEVICE static float round_part(Part& part, Pairs& words) {
    constexpr float kWhole = 0x1.8p23F;  // a number added to it is rounded to an integer
    const bool is_finite = part.most < INFINITY;
    const bool is_none = !is_finite || part.most < 0x1p-100F;
    const uint32_t exponent = is_none ? 127 : bit_cast<uint32_t>(part.most) >> 23;  // e + 127
    const auto factor = bit_cast<float>((127 + 13 + 127 - exponent) << 23);
    int32_t sum = 0;
    RUNNEL_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      const uint32_t bits = bit_cast<uint32_t>(part.x[i / 4].at[i % 4] * factor + kWhole);
      const int32_t v = is_none ? 0 : static_cast<int32_t>(bits - bit_cast<uint32_t>(kWhole));
      const int32_t upper = (v + 128) >> 8;
      const int32_t lower = v - 256 * upper;
      uint32_t& lowers = words.at[i / 4 * 2];
      uint32_t& uppers = words.at[i / 4 * 2 + 1];
      lowers = (i % 4 == 0 ? 0 : lowers) | static_cast<uint32_t>(lower & 0xff) << i % 4 * 8;
      uppers = (i % 4 == 0 ? 0 : uppers) | static_cast<uint32_t>(upper & 0xff) << i % 4 * 8;
      sum += v;
    }
    part.sum = static_cast<float>(sum);
    if (!is_finite) return bit_cast<float>(0x7fc00000);
    return is_none ? 0.0F : bit_cast<float>((exponent - 13) << 23);
  }

  // A lane's run of a weight as it is stored. Members that its form does not have stay zero.
  struct StoredRun {
    Pairs first = {}, latter = {};
    uint16_t d = 0, d_least = 0;
    int8_t factors[2] = {};
  };
  // All runs of a weight that a thread multiplies in a chunk. They are loaded before the inputs are
  // converted, so that the thread waits only once.
  struct Loads {
    StoredRun at[kGroups][kTiles];
  };
  // The same as integers, which are signed bytes, and scales.
  struct RunWeights {
    uint32_t words[8];
    float scale[2], least;
  };

  RUNNEL_DEVICE static StoredRun stored_run(const std::byte* group, const BlockForm& form,
                                            int lane) {
    StoredRun run;
    const auto* const pairs = reinterpret_cast<const Pairs*>(group);
    run.first = pairs[lane];
    if (!form.nibbles) run.latter = pairs[kWarp + lane];
    const std::byte* const scales = group + form.words_bytes();
    if (!form.has_factors()) {
      run.d = reinterpret_cast<const uint16_t*>(scales)[lane];
      return run;
    }
    const auto* const factors = reinterpret_cast<const int8_t*>(scales);
    const auto* const numbers = reinterpret_cast<const uint16_t*>(scales + 2 * kWarp);
    run.factors[0] = factors[lane];
    run.factors[1] = factors[kWarp + lane];
    run.d = numbers[lane % kTileN];
    if (form.minimum) run.d_least = numbers[kTileN + lane % kTileN];
    return run;
  }

  // The groups of the whole input that begin at run `first`.
  RUNNEL_DEVICE static int groups_from(const Args& args, int first) {
    return groups_of(args.in) - first / kGroupRuns;
  }

  RUNNEL_DEVICE static void load(const Args& args, const BlockForm& form, int tile, int first,
                                 int t, Loads& to) {
    const int tiles = (args.out + kTileN - 1) / kTileN;
    RUNNEL_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      const int group = i * kMatmulWarps + t / kWarp;
      RUNNEL_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        if (group >= groups_from(args, first) || tile + n >= tiles) continue;  // stays zero
        const int64_t index = int64_t{tile + n} * groups_of(args.in) + first / kGroupRuns + group;
        to.at[i][n] =
            stored_run(static_cast<const std::byte*>(args.panels) + index * form.group_bytes(),
                       form, t % kWarp);
      }
    }
  }

  RUNNEL_DEVICE static RunWeights weights_of(const StoredRun& run, const BlockForm& form) {
    RunWeights weights;
    RUNNEL_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (form.nibbles) {
        weights.words[2 * i] = run.first.at[i] & 0x0f0f0f0f;
        weights.words[2 * i + 1] = run.first.at[i] >> 4 & 0x0f0f0f0f;
      } else {
        weights.words[i] = run.first.at[i];
        weights.words[4 + i] = run.latter.at[i];
      }
    }
    if (form.table) {
      RUNNEL_UNROLL
      for (uint32_t& word : weights.words) word = iq4_nl_values(word);
    }
    const float d = widened_half(run.d);
    weights.scale[0] = form.has_factors() ? d * run.factors[0] : d;
    weights.scale[1] = d * run.factors[1];
    weights.least = widened_half(run.d_least) * run.factors[1];
    return weights;
  }

  // A thread's terms of a chunk: those of a run in every kMatmulWarps-th group.
  RUNNEL_DEVICE static void multiply(const Args& args, const BlockForm& form, int row, int groups,
                                     const RunInputs* inputs, float* terms, int t,
                                     const Loads& loads) {
    const int rows = args.rows - row < kRows ? args.rows - row : kRows;
    RUNNEL_UNROLL
    for (int i = 0; i < kGroups; ++i) {
      const int group = i * kMatmulWarps + t / kWarp;
      if (group >= groups) return;
      RunWeights weights[kTiles];
      RUNNEL_UNROLL
      for (int n = 0; n < kTiles; ++n) weights[n] = weights_of(loads.at[i][n], form);
      const int run = group * kGroupRuns + t % kWarp / kTileN;
      float* to = terms + t % kTileN;
      for (int m = 0; m < rows; ++m, to += kOuts) {
        const RunInputs x = inputs[m * kRuns + run];
        RUNNEL_UNROLL
        for (int n = 0; n < kTiles; ++n) {
          put_terms(form, weights[n], x, run, to + n * kTileN);
        }
      }
    }
  }

  RUNNEL_DEVICE static void put_terms(const BlockForm& form, const RunWeights& weights,
                                      const RunInputs& x, int run, float* to) {
    int32_t sum[2];
    RUNNEL_UNROLL
    for (int half = 0; half < 2; ++half) {
      int32_t lower = 0, upper = 0;
      RUNNEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int word = half * 4 + i;
        lower = dot_bytes(weights.words[word], x.words[word / 2].at[word % 2 * 2], lower);
        upper = dot_bytes(weights.words[word], x.words[word / 2].at[word % 2 * 2 + 1], upper);
      }
      sum[half] = 256 * upper + lower;
    }
    const auto scaled = [&](int32_t exact, int half) {
      return flushed_product(flushed_product(static_cast<float>(exact), x.power),
                             weights.scale[half]);
    };
    if (form.halves) {
      to[2 * run * kTerm] = scaled(sum[0], 0);
      to[(2 * run + 1) * kTerm] = scaled(sum[1], 1);
      return;
    }
    float term = scaled(sum[0] + sum[1] - form.offset * (x.first + x.latter), 0);
    if (form.minimum) term = flushed_sum(term, -flushed_product(x.sum, weights.least));
    to[run * kTerm] = term;
  }
};

// Whether a kernel multiplies weights in blocks.
template <typename Kernel>
inline constexpr bool kIsBlockProduct = false;
template <int kRows, int kTiles>
inline constexpr bool kIsBlockProduct<BlockProduct<kRows, kTiles>> = true;

}  // namespace runnel::cuda
