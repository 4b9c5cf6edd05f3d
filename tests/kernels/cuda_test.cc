// Tests of the CUDA kernels beyond the tests that every backend runs: index maps, and the variants
// of operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "kernels/cuda/attend_launch.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/gated_recur.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/script.h"
#include "kernels/cuda/stage.h"
#include "kernels/cuda/tile.h"
#include "kernels/cuda/tile_product.h"
#include "kernels/cuda/tile_recur.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/host_device.h"

namespace runnel::cuda {
namespace {

TEST(Cuda, AMissingDeviceIsReportedInOneSentence) {
  const auto backend = make_cuda_backend();
  if (backend.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(backend.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(backend.status().message().find("use backend cpu"), std::string::npos);
  EXPECT_EQ(backend.status().message().find('\n'), std::string::npos);
}

TEST(Cuda, TheNumericsIdNamesEveryOption) {
  const auto id = [](const CudaOptions& options) {
    return DeviceBackend<HostDevice>(options, ThreadOrder::kForward).numerics(Precision::kBf16);
  };
  EXPECT_EQ(DeviceBackend<HostDevice>({}, ThreadOrder::kForward).device(), DeviceKind::kCuda);
  EXPECT_EQ(id({}), "cuda/host/bf16/step");
  EXPECT_EQ(id({.library = true}), "cuda/host/bf16/step+cublas");
  EXPECT_EQ(id({.replay = true}), "cuda/host/bf16/step+replay8");
  EXPECT_EQ(id({.chunks = true}), "cuda/host/bf16/step+chunks64");
  EXPECT_EQ(id({.whole = false}), id({})) << "the bits are the same";
  const auto of_blocks = [](const CudaOptions& options) {
    return DeviceBackend<HostDevice>(options, ThreadOrder::kForward).numerics(Precision::kBlocks);
  };
  EXPECT_EQ(of_blocks({}), "cuda/host/blocks/block32");
  EXPECT_EQ(of_blocks({.library = true}), "") << "a library has no products with blocks";
}

TEST(Cuda, OnlyTheLibraryMakesBitsDependOnTheBatch) {
  const auto changes = [](const CudaOptions& options) {
    return DeviceBackend<HostDevice>(options, ThreadOrder::kForward).batch_changes_bits();
  };
  EXPECT_TRUE(changes({.library = true}));
  for (const CudaOptions& options :
       {CudaOptions{}, CudaOptions{.replay = true}, CudaOptions{.chunks = true}}) {
    EXPECT_FALSE(changes(options));
  }
}

TEST(Cuda, OptionsOnlyForLinearTransformersAreRefused) {
  const auto takes = [](const CudaOptions& options, const RuleTerms& terms) {
    const DeviceBackend<HostDevice> backend(options, ThreadOrder::kForward);
    return backend.takes(Recurrence{.terms = terms});
  };
  for (const CudaOptions& options :
       {CudaOptions{.library = true}, CudaOptions{.replay = true}, CudaOptions{.chunks = true}}) {
    EXPECT_TRUE(takes(options, LinearTerms{}).ok());
    const Status status = takes(options, Mamba2Terms{});
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                testing::HasSubstr("use kernels own, gpu_state plain and prompts steps"));
  }
  const auto takes_attention = [](const CudaOptions& options) {
    return DeviceBackend<HostDevice>(options, ThreadOrder::kForward).takes(Attention{}).ok();
  };
  EXPECT_TRUE(takes_attention({}));
  EXPECT_FALSE(takes_attention({.library = true}));
  for (const RuleTerms& terms :
       {RuleTerms(Rwkv7Terms{}), RuleTerms(GatedTerms{}), RuleTerms(Mamba1Terms{})}) {
    EXPECT_TRUE(takes({}, terms).ok());
  }
}

// ---- index maps ---------------------------------------------------------------------------------

// By the tables of the PTX manual, lane 5 has row 1 and column pair 1 of its groups.
static_assert(element_a(5, 0).row == 1 && element_a(5, 0).col == 2);
static_assert(element_a(5, 1).row == 9 && element_a(5, 1).col == 2);
static_assert(element_a(5, 2).row == 1 && element_a(5, 2).col == 10);
static_assert(element_a(5, 3).row == 9 && element_a(5, 3).col == 10);
static_assert(element_b(5, 0).row == 2 && element_b(5, 0).col == 1);
static_assert(element_b(5, 1).row == 10 && element_b(5, 1).col == 1);
static_assert(element_c(5, 1).row == 1 && element_c(5, 1).col == 3);
static_assert(element_c(5, 2).row == 9 && element_c(5, 2).col == 2);

TEST(CudaFragments, HoldEveryElementOnce) {
  std::set<int> a, b, c;
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Element at = element_a(lane, i);
      a.insert(at.row * kTileK + at.col);
      a.insert(at.row * kTileK + at.col + 1);
      c.insert(element_c(lane, i).row * kTileN + element_c(lane, i).col);
    }
    for (int i = 0; i < 2; ++i) {
      const Element at = element_b(lane, i);
      b.insert(at.row * kTileN + at.col);
      b.insert((at.row + 1) * kTileN + at.col);
    }
  }
  EXPECT_EQ(a.size(), size_t{kTileM * kTileK});
  EXPECT_EQ(b.size(), size_t{kTileK * kTileN});
  EXPECT_EQ(c.size(), size_t{kTileM * kTileN});
  EXPECT_EQ(*a.rbegin() + 1, kTileM * kTileK);
  EXPECT_EQ(*b.rbegin() + 1, kTileK * kTileN);
  EXPECT_EQ(*c.rbegin() + 1, kTileM * kTileN);
}

TEST(CudaPanels, EveryWeightHasAPlaceOfItsOwn) {
  for (const int in : {1, 7, 16, 31, 32, 33, 100}) {
    for (const int out : {1, 8, 9, 32, 33, 70}) {
      std::set<int64_t> fp32;
      for (int o = 0; o < out; ++o) {
        for (int i = 0; i < in; ++i) fp32.insert(fp32_index(in, o, i));
      }
      EXPECT_EQ(fp32.size(), static_cast<size_t>(in) * out);
      EXPECT_LT(*fp32.rbegin(), fp32_elements(in, out));
    }
  }
}

// Each part of each weight is in the panels exactly once; the rest is zero padding.
TEST(CudaPanels, EveryPartOfAWeightIsThereOnce) {
  for (const int in : {1, 7, 16, 31, 32, 33, 100, 130, 260}) {
    for (const int out : {1, 8, 9, 33}) {
      std::vector<float> weight(in * out), bias(out);
      for (int i = 0; i < in * out; ++i) weight[i] = static_cast<float>(1 + i % 127) * 0x1.002p0F;
      for (int o = 0; o < out; ++o) bias[o] = 1e6F + static_cast<float>(o);
      for (const bool split : {false, true}) {
        const auto panels = bf16_panels({weight.data(), out, in}, {bias.data(), 1, out}, split);
        EXPECT_EQ(std::ssize(panels), bf16_words(in, out, split));
        std::map<uint32_t, int> found, expected;
        const int words = tile_words((in + kChunkBf16 - 1) / kChunkBf16, split);
        for (int i = 0; i < std::ssize(panels); ++i) {
          if (i % words >= words - kTileN) {
            const int o = i / words * kTileN + i % words - (words - kTileN);
            EXPECT_EQ(std::bit_cast<float>(panels[i]), o < out ? bias[o] : 0.0F);
            continue;
          }
          for (const uint32_t half : {panels[i] & 0xffff, panels[i] >> 16}) ++found[half];
        }
        for (const float w : weight) {
          ++expected[bf16_bits(w)];
          if (split) ++expected[bf16_bits(w - from_bf16(bf16_bits(w)))];
        }
        found.erase(0);
        EXPECT_EQ(found, expected) << in << " x " << out;
      }
    }
  }
}

template <typename Columns>
void expect_state_covered(int threads, int dk, int dv) {
  std::vector<int> owners(static_cast<size_t>(dk) * dv);
  for (int t = 0; t < threads; ++t) {
    StateShare share = state_share<Columns>(t, threads, dv);
    for (; share.group < share.groups && share.column < dv;
         share.column += threads * Columns::kWidth) {
      for (int row = share.group; row < dk; row += share.groups) {
        for (int j = 0; j < Columns::kWidth; ++j) ++owners[row * dv + share.column + j];
      }
    }
  }
  for (const int count : owners) ASSERT_EQ(count, 1) << dk << " x " << dv;
}

TEST(CudaRecur, EveryStateElementHasOneThread) {
  for (const int dk : {1, 3, 31, 32, 64, 128, 200}) {
    for (const int dv : {1, 3, 17, 32, 100, 127, 128, 129, 300, 600}) {
      expect_state_covered<Single>(128, dk, dv);
      if (dv % 4 == 0) expect_state_covered<Quad>(128, dk, dv);
      if (dv % 4 == 0) expect_state_covered<Quad>(256, dk, dv);
    }
  }
}

TEST(CudaRecur, RegistersAreForShapesThatFit) {
  EXPECT_TRUE(RecurSmall::fits(32, 32));
  EXPECT_FALSE(RecurSmall::fits(33, 32));
  EXPECT_FALSE(RecurSmall::fits(32, 48));
  EXPECT_TRUE(RecurMedium::fits(64, 64));
  EXPECT_FALSE(RecurMedium::fits(64, 128));
  EXPECT_TRUE(RecurLarge::fits(128, 128));
  EXPECT_FALSE(RecurLarge::fits(129, 128));
  EXPECT_TRUE(GatedRecur<true>::Medium::fits(64));
  EXPECT_FALSE(GatedRecur<true>::Medium::fits(65));
  EXPECT_TRUE(GatedRecur<true>::Large::fits(256));
  EXPECT_FALSE(GatedRecur<true>::Large::fits(257));
}

// Otherwise every layer of every step would repeat the failed allocation.
TEST(CudaAttend, TriesAFailedAllocationOnlyOnce) {
  struct FullDevice {
    int asked = 0;
    Buffer allocate(int64_t, Memory) {
      ++asked;
      throw std::bad_alloc();
    }
  } device;
  SegmentSums sums;
  EXPECT_EQ(sums.on(device), nullptr);
  EXPECT_EQ(sums.on(device), nullptr);
  EXPECT_EQ(device.asked, 1);
}

TEST(CudaEmbed, FindsTheRowOfAnInput) {
  // Two rows with one input each, a prompt, two empty rows, a prompt.
  const int32_t first[] = {0, 1, 2, 7, 7, 7, 9};
  const int expected[] = {0, 1, 2, 2, 2, 2, 2, 5, 5};
  for (int input = 0; input < 9; ++input) EXPECT_EQ(row_of(first, 6, input), expected[input]);
  // Inputs are counted from the first input of the run.
  for (int input = 0; input < 7; ++input) {
    EXPECT_EQ(row_of(first + 2, 4, input), expected[input + 2] - 2);
  }
  const int32_t starts_empty[] = {0, 0, 1, 1, 3};
  const int found[] = {1, 3, 3};
  for (int input = 0; input < 3; ++input) EXPECT_EQ(row_of(starts_empty, 4, input), found[input]);
}

// ---- states in registers and in memory ----------------------------------------------------------

// The arithmetic is the same wherever S is kept, so the bits are the same.
TEST(CudaRecur, RegistersAndMemoryGiveTheSameBits) {
  struct Shape {
    int dk, dv;
  };
  for (const Shape shape : {Shape{32, 32}, Shape{16, 8}, Shape{64, 64}}) {
    constexpr int kInputs = 5;
    const int head = shape.dk * shape.dv + shape.dk;
    std::vector<float> in = random_floats(int64_t{kInputs} * (2 * shape.dk + shape.dv), 3);
    const auto run = [&](auto kernel) {
      using Kernel = decltype(kernel);
      std::vector<Quad> state(head / 4, Quad{{0.25F, 0.5F, 1.0F, 2.0F}});
      std::vector<float> out(int64_t{kInputs} * shape.dv, NAN);
      int32_t slot = 0;
      const int32_t first[] = {0, kInputs};
      const float* q = in.data();
      const float* k = q + kInputs * shape.dk;
      const float* v = k + kInputs * shape.dk;
      const RecurArgs args = {{&slot, first, 1},
                              nullptr,
                              Part::kAll,
                              StateForm::kPlain,
                              kInputs,
                              q,
                              k,
                              v,
                              shape.dk,
                              shape.dk,
                              shape.dv,
                              nullptr,
                              0,
                              FeatureMap::kElu,
                              1,
                              shape.dk,
                              shape.dv,
                              1e-6F,
                              {reinterpret_cast<std::byte*>(state.data()), head * int64_t{4}, 0},
                              out.data(),
                              shape.dv};
      HostDevice(ThreadOrder::kShuffled).launch<Kernel>(Kernel::launch(1, args), args);
      for (const Quad& quad : state) out.insert(out.end(), quad.at, quad.at + 4);
      return out;
    };
    const std::vector<float> in_memory = run(RecurAligned());
    if (RecurSmall::fits(shape.dk, shape.dv)) {
      EXPECT_TRUE(same_bits(run(RecurSmall()), in_memory));
    }
    ASSERT_TRUE(RecurMedium::fits(shape.dk, shape.dv));
    EXPECT_TRUE(same_bits(run(RecurMedium()), in_memory));
  }
}

// ---- sizes that do not fit ----------------------------------------------------------------------

TEST(CudaLimits, SizesTooLargeForTheDeviceAreRefusedWithoutALaunch) {
  constexpr int kWidth = 60'000;
  DeviceBackend<HostDevice> backend({}, ThreadOrder::kForward);
  std::vector<float> x(kWidth, 1.0F);
  std::vector<float> out(kWidth, 7.0F);
  const View row = {x.data(), DType::kF32, 1, kWidth, kWidth};
  EXPECT_TRUE(backend.done(0).ok());
  backend.norm(row, View{}, {row, row, 1e-5F}, {out.data(), DType::kF32, 1, kWidth, kWidth});
  EXPECT_THAT(out, testing::Each(7.0F));
  EXPECT_EQ(backend.done(0).status(),
            Status(Code::kFailedPrecondition,
                   "the model's sizes are too large for this GPU: a block of a kernel would need "
                   "240000 bytes of shared memory, and has 232448: use backend cpu"));
}

// ---- data that comes from the host --------------------------------------------------------------

TEST(CudaStage, OnlyTheFirstStepReadsTheHostsArrays) {
  Watched watched;
  DeviceBackend<HostDevice> backend({}, ThreadOrder::kForward, false, &watched);
  float table[] = {10, 11, 12, 13};
  int32_t slot[] = {1, 0};
  const int32_t first[] = {0, 1, 2};
  int32_t values[] = {3, 1};
  const Control controls[2] = {};
  const Embedding embedding = {.values = {table, DType::kF32, 4, 1, 1}, .positions = {}};
  std::vector<float> out(6, 0.0F);
  backend.run({slot, first, 2}, 1, [&](Backend& lane, int, int) {
    for (int step = 0; step < 3; ++step) {
      lane.embed({slot, first, 2}, {values, DType::kI32, 1, 2, 2}, controls, embedding,
                 {out.data() + 2 * step, DType::kF32, 2, 1, 1});
    }
  });
  EXPECT_THAT(out, testing::ElementsAre(13, 11, 13, 11, 13, 11));
  ASSERT_EQ(watched.values.size(), 3U);
  EXPECT_EQ(watched.values[0], values);
  EXPECT_NE(watched.values[1], values);
  EXPECT_EQ(watched.values[2], watched.values[1]);
}

TEST(CudaStage, AFewBytesAreWrittenWithoutWaiting) {
  Watched watched;
  DeviceBackend<HostDevice> backend({}, ThreadOrder::kForward, false, &watched);
  const Buffer held = backend.allocate(200, Memory::kDevice);
  Control control;
  control.seed = 7;
  control.remaining = 3;
  backend.copy({reinterpret_cast<std::byte*>(&control), sizeof(control)},
               {held.data(), sizeof(control)});
  EXPECT_EQ(watched.copies, 0);
  EXPECT_EQ(std::memcmp(held.data(), &control, sizeof(control)), 0);
  EXPECT_EQ(held.data()[sizeof(control)], std::byte{0});
  std::vector<std::byte> more(200, std::byte{5});
  backend.copy({more.data(), 200}, {held.data(), 200});
  EXPECT_EQ(watched.copies, 1);
  EXPECT_EQ(held.data()[199], std::byte{5});
}

// ---- scripts ------------------------------------------------------------------------------------

StageArgs stage_args(int count) {
  static int32_t memory[64];
  return {memory, memory + 8, count, memory + 16, memory + 32};
}

TEST(CudaScript, TheSameLaunchesAreTheSameBytes) {
  const auto script = [](std::vector<int> counts, int64_t blocks) {
    Script<HostDevice> script;
    for (const int count : counts) script.add<StageKernel>({blocks, 0}, stage_args(count));
    EXPECT_EQ(script.launches(), static_cast<int64_t>(counts.size()));
    return std::string(script.bytes());
  };
  EXPECT_EQ(script({1, 2}, 1), script({1, 2}, 1));
  EXPECT_NE(script({1, 2}, 1), script({2, 1}, 1));
  EXPECT_NE(script({1}, 1), script({1}, 2));
  EXPECT_NE(script({1}, 1), script({1, 1}, 1));
}

TEST(CudaScript, OtherKernelsAreOtherBytes) {
  Script<HostDevice> small;
  Script<HostDevice> medium;
  const RecurArgs args{};
  small.add<RecurSmall>({1, 0}, args);
  medium.add<RecurMedium>({1, 0}, args);
  EXPECT_NE(small.bytes(), medium.bytes());
}

TEST(CudaScript, StagesWhatABatchReads) {
  const int32_t slot[] = {5, -1, 7};
  const int32_t first[] = {0, 1, 2, 9};
  int32_t here[8] = {99, 99, 99, 99, 99, 99, 99, 99};
  HostDevice device(ThreadOrder::kForward);
  device.batch([&] {
    device.launch<StageKernel>(StageKernel::launch(3), {slot, first, 3, here, here + 3});
    EXPECT_EQ(here[0], 99) << "a batch only writes down";
  });
  EXPECT_THAT(here, testing::ElementsAre(5, -1, 7, 0, 1, 2, 9, 99));
}

// ---- tiles of rows ------------------------------------------------------------------------------

TEST(CudaTile, EveryPairOfInputsHasAPlaceInItsFragment) {
  constexpr int kWidth = 256;
  std::set<int> places;
  for (int row = 0; row < kTileRows; ++row) {
    for (int k = 0; k < kWidth; k += 2) places.insert(tile_pair_index(row, k));
  }
  EXPECT_EQ(places.size(), size_t{kTileRows * kWidth / 2});
  EXPECT_EQ(*places.rbegin() + 1, kTileRows * kWidth / 2);
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Element at = element_a(lane, i);
      EXPECT_EQ(tile_pair_index(at.row, 2 * kTileK + at.col), (2 * kWarp + lane) * 4 + i);
    }
  }
}

TEST(CudaTile, EveryStateElementHasOneLane) {
  std::vector<int> owners(kTileHeadSize * kTileHeadSize);
  for (int lane = 0; lane < kWarp; ++lane) {
    const LaneShare share = lane_share(lane);
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 4; ++j) ++owners[share.row(i) * kTileHeadSize + share.column + j];
      EXPECT_EQ(place_in_group(share.row(i)), share.group * 8 + i);
    }
  }
  EXPECT_THAT(owners, testing::Each(1));
}

// Every tile of a product belongs to one block, for any number of blocks.
template <typename ShareOf>
void expect_tiles_covered(int log, int tiles, const ShareOf& share_of) {
  std::vector<int> owners(tiles);
  for (int rank = 0; rank < 1 << log; ++rank) {
    const auto share = share_of(Rank{rank, log});
    for (int j = 0; j < share.tiles; ++j) ++owners.at(share.tile(j));
  }
  EXPECT_THAT(owners, testing::Each(1));
}

TEST(CudaTile, EveryOutputHasOneBlock) {
  for (int log = 0; log <= 4; ++log) {
    for (const int out : {8, 30, 32, 96, 256, 1000}) {
      expect_tiles_covered(log, (out + 7) / 8,
                           [&](Rank rank) { return share_of<256>(nullptr, out, rank); });
      expect_tiles_covered(log, (out + 15) / 16 * 2,
                           [&](Rank rank) { return share_of<256>(nullptr, out, rank, 2); });
    }
    const auto expect_heads_covered = [&]<int heads>() {
      expect_tiles_covered(log, 3 * heads * kTileHeadSize / kTileN,
                           [&](Rank rank) { return share_of_heads<256, heads>(nullptr, rank); });
    };
    expect_heads_covered.operator()<1>();
    expect_heads_covered.operator()<3>();
    expect_heads_covered.operator()<8>();
  }
}

// ---- clusters -----------------------------------------------------------------------------------

// Each block of a cluster adds its rank to a number that it received, and sends it to the next one.
struct RelayKernel {
  struct Args {
    int rounds;
    int32_t* out;
  };
  static constexpr int kThreads = kWarp;
  static constexpr int kResident = 1;

  template <typename Block>
  static constexpr void run(Block& block, const Args& args) {
    int32_t* box = block.template shared<int32_t>();
    block.gather(block.ranks());
    block.meet(0, [&] { block.each([&](int t) { box[t] = 0; }); });
    for (int round = 0; round < args.rounds; ++round) {
      typename Block::template Each<int32_t> held;
      block.each([&](int t) { held[t] = box[t]; });
      block.meet(0, [] {});
      const int to = (block.rank() + 1) % block.ranks();
      block.meet(block.ranks() > 1 ? kThreads * 4 : 0, [&] {
        block.each([&](int t) { block.send(to, box + t, held[t] + block.rank()); });
      });
    }
    block.each([&](int t) { args.out[block.index() * kThreads + t] = box[t]; });
  }
};

TEST(CudaCluster, BlocksReachIntoEachOther) {
  for (const int ranks : {1, 2, 5, 16}) {
    std::vector<int32_t> out(3 * ranks * kWarp, -1);
    HostDevice(ThreadOrder::kShuffled)
        .launch<RelayKernel>({.blocks = 3 * ranks, .shared_bytes = kWarp * 4, .cluster = ranks},
                             {ranks, out.data()});
    EXPECT_THAT(out, testing::Each(ranks * (ranks - 1) / 2)) << ranks;
  }
}

// Sends in a last phase, without a meeting between the send and the end of the kernel.
struct LateKernel {
  struct Args {
    bool met;  // whether the blocks have met before
  };
  static constexpr int kThreads = kWarp;

  template <typename Block>
  static constexpr void run(Block& block, const Args& args) {
    if (args.met) block.gather(block.ranks());
    block.phase([&](int t) {
      if (t == 0) block.send(1 - block.rank(), block.template shared<float>(), 1.0F);
    });
  }
};

TEST(CudaClusterDeathTest, SendsNeedTheirTargetToBeRunning) {
  HostDevice device(ThreadOrder::kForward);
  const Launch launch = {.blocks = 2, .shared_bytes = 4, .cluster = 2};
  EXPECT_DEATH(device.launch<LateKernel>(launch, {true}), "before its last meeting|still there");
  EXPECT_DEATH(device.launch<LateKernel>(launch, {false}), "have met");
}

// The first block copies memory to all blocks of its cluster. Each block copies more to itself.
struct CopyKernel {
  struct Args {
    const Quad* from;  // [2 * kWarp]
    bool waits;
    Quad* out;  // [blocks][2 * kWarp]
  };
  struct Shared {
    Quad all[kWarp], own[kWarp];
    Barrier filled, brought;
  };
  static constexpr int kThreads = kWarp;
  static constexpr bool kClusters = true;

  template <typename Block>
  static constexpr void run(Block& block, const Args& args) {
    Shared& shared = *block.template shared<Shared>();
    block.each([&](int t) {
      if (t > 0) return;
      block.prepare(&shared.filled, 1);
      block.prepare(&shared.brought, kThreads);
    });
    block.gather(1);
    block.each([&](int t) {
      if (t == 0) block.expect(&shared.filled, sizeof(shared.all));
      const unsigned all = (1U << block.ranks()) - 1;
      if (t == 0 && block.rank() == 0) {
        block.fetch(shared.all, args.from, sizeof(shared.all), &shared.filled, all);
      }
      block.bring(shared.own + t, args.from + kWarp + t);
      block.brought(&shared.brought);
    });
    block.each([&](int t) {
      if (args.waits) block.await(&shared.filled, 0);
      if (args.waits) block.await(&shared.brought, 0);
      Quad* out = args.out + block.index() * 2 * kWarp;
      out[t] = shared.all[t];
      out[kWarp + t] = shared.own[t];
    });
  }
};

TEST(CudaCluster, CopiesComeByThemselves) {
  const std::vector<float> from = random_floats(2 * kWarp * 4, 1);
  for (const int ranks : {1, 2, 16}) {
    std::vector<float> out(2 * ranks * from.size());
    HostDevice(ThreadOrder::kShuffled)
        .launch<CopyKernel>(
            {.blocks = 2 * ranks, .shared_bytes = sizeof(CopyKernel::Shared), .cluster = ranks},
            {reinterpret_cast<const Quad*>(from.data()), true,
             reinterpret_cast<Quad*>(out.data())});
    for (int block = 0; block < 2 * ranks; ++block) {
      const auto begin = out.begin() + block * std::ssize(from);
      EXPECT_TRUE(same_bits(from, {begin, begin + std::ssize(from)})) << block << " of " << ranks;
    }
  }
}

TEST(CudaClusterDeathTest, CopiesAreWaitedFor) {
  std::vector<float> from(2 * kWarp * 4), out(2 * from.size());
  HostDevice device(ThreadOrder::kForward);
  EXPECT_DEATH(
      device.launch<CopyKernel>(
          {.blocks = 2, .shared_bytes = sizeof(CopyKernel::Shared), .cluster = 2},
          {reinterpret_cast<const Quad*>(from.data()), false, reinterpret_cast<Quad*>(out.data())}),
      "waits for every copy");
}

// ---- bf16 on tensor cores -----------------------------------------------------------------------

struct TensorProblem {
  int rows, in, out;
  std::vector<float> x, weight, bias;
  DeviceBackend<HostDevice> backend{{}, ThreadOrder::kShuffled};
  Weight packed;

  TensorProblem(int rows, int in, int out, Precision precision)
      : rows(rows),
        in(in),
        out(out),
        x(random_floats(int64_t{rows} * in, 1)),
        weight(random_floats(int64_t{out} * in, 2)),
        bias(random_floats(out, 3)),
        packed(backend.pack({weight.data(), out, in}, {bias.data(), 1, out}, precision)) {}

  // Computes rows [from, from + count), with the kernel that the backend chooses for `count` rows.
  std::vector<float> run(int from, int count) {
    Guarded y(count, out, 3);
    backend.matmul({x.data() + int64_t{from} * in, DType::kF32, count, in, in}, packed,
                   Activation::kNone, y.view());
    y.expect_guards("tensor cores");
    return y.values();
  }
};

// Compares with fp64 sums of numbers rounded by `round`. The tolerance is `error` times the sum of
// the terms' magnitudes, plus the error of an fp32 sum in any order.
template <typename Round>
void expect_sums(Precision precision, double error, const Round& round) {
  for (const int rows : {1, 5, 16, 17, 40, 257}) {
    for (const int in : {1, 15, 16, 33, 128, 130, 260}) {
      for (const int out : {1, 8, 30, 65}) {
        if (rows > 40 && in != 130) continue;
        TensorProblem problem(rows, in, out, precision);
        const std::vector<float> found = problem.run(0, rows);
        for (int row = 0; row < rows; ++row) {
          for (int o = 0; o < out; ++o) {
            double sum = problem.bias[o];
            double sizes = std::abs(sum);
            for (int i = 0; i < in; ++i) {
              const double term = double{round(problem.x[int64_t{row} * in + i])} *
                                  double{round(problem.weight[int64_t{o} * in + i])};
              sum += term;
              sizes += std::abs(term);
            }
            ASSERT_NEAR(found[int64_t{row} * out + o], sum, (error + 6e-8 * (in + 6)) * sizes)
                << rows << " x " << in << " x " << out;
          }
        }
      }
    }
  }
}

TEST(CudaTensorCores, MultiplyRoundedNumbers) {
  expect_sums(Precision::kBf16, 0.0, [](float x) { return from_bf16(bf16_bits(x)); });
}

// Two parts omit at most 2^-16 of a factor. The omitted product of second parts is at most 2^-16.
TEST(CudaTensorCores, MultiplySplitNumbers) {
  expect_sums(Precision::kSplit, 3 * 0x1p-16, [](float x) { return x; });
}

TEST(CudaTensorCores, BitsDoNotDependOnTheBatch) {
  constexpr int kOut = 70;
  for (const Precision precision : {Precision::kBf16, Precision::kSplit}) {
    TensorProblem problem(270, 100, kOut, precision);
    const std::vector<float> together = problem.run(0, 270);
    for (const int count : {1, 16, 100}) {
      for (const int row : {0, 15, 16, 36, 150}) {
        const auto begin = together.begin() + int64_t{row} * kOut;
        EXPECT_TRUE(same_bits(problem.run(row, count), {begin, begin + int64_t{count} * kOut}));
      }
    }
  }
}

TEST(CudaTensorCores, SplitIsThePreciseFormOfBf16) {
  const DeviceBackend<HostDevice> backend({}, ThreadOrder::kForward);
  EXPECT_EQ(backend.precise(Precision::kBf16), Precision::kSplit);
  EXPECT_EQ(backend.precise(Precision::kFp32), Precision::kFp32);
  EXPECT_EQ(backend.numerics(Precision::kSplit), "");
}

}  // namespace
}  // namespace runnel::cuda
