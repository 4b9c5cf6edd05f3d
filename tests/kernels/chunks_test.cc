// Prompts in chunks give the results of stepping, up to the rounding that another order of sums and
// split factors cause. The bits are the same wherever a prompt is cut at chunks.
#include "kernels/cuda/chunks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/recur_sequences.h"

namespace runnel::cuda {
namespace {

// The distance of `a` from `b`, relative to the length of b.
double distance(const float* a, const float* b, int64_t count) {
  double square = 0;
  double size = 0;
  for (int64_t i = 0; i < count; ++i) {
    square += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(square / size);
}

// Takes all sequences to their ends, by calls of these lengths. The last call repeats as needed.
void run(Sequences& sequences, std::vector<std::vector<int>> calls) {
  for (size_t call = 0;; ++call) {
    std::vector<int> lengths = calls[std::min(call, calls.size() - 1)];
    int left = 0;
    for (int i = 0; i < Sequences::kCount; ++i) {
      const int to_come = sequences.length() - sequences.position(i);
      lengths[i] = std::min(lengths[i], to_come);
      left += to_come;
    }
    if (left == 0) return;
    sequences.advance(lengths);
  }
}

void expect_near_stepping(const HeadShape& shape, int length, const std::vector<int>& first,
                          Where where = ThreadOrder::kShuffled) {
  Sequences stepped(shape, length, {}, where);
  Sequences found(shape, length, {.chunks = true}, where);
  run(stepped, {{1, 1, 1}});
  run(found, {first, {length, length, length}});
  const int64_t inputs = int64_t{Sequences::kCount} * length * shape.heads;
  for (int64_t i = 0; i < inputs; ++i) {
    ASSERT_LT(distance(&found.out()[i * shape.dv], &stepped.out()[i * shape.dv], shape.dv), 5e-5)
        << shape.dk << " x " << shape.dv << " output " << i;
  }
  for (int i = 0; i < Sequences::kCount; ++i) {
    for (int head = 0; head < shape.heads; ++head) {
      const std::vector<float> state = stepped.state(i, head);
      EXPECT_LT(distance(found.state(i, head).data(), state.data(), shape.dk * shape.dv), 2e-5);
      const int64_t z = int64_t{shape.dk} * shape.dv;
      EXPECT_LT(distance(&found.state(i, head)[z], &state[z], shape.dk), 1e-6);
    }
  }
}

TEST(CudaChunks, AreNearStepping) {
  expect_near_stepping({2, 32, 32}, 200, {1, 70, 200});
  expect_near_stepping({1, 17, 5}, 150, {150, 64, 1});
  expect_near_stepping({2, 8, 8}, 130, {2, 130, 63});
  expect_near_stepping({1, 40, 70}, 140, {10, 140, 75});
  expect_near_stepping({1, 128, 64}, 130, {0, 130, 1});
}

TEST(GpuChunks, AreNearStepping) {
  const auto backend = make_cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << backend.status().message();
  expect_near_stepping({8, 32, 32}, 784, {1, 70, 784}, {});
  expect_near_stepping({2, 17, 5}, 150, {150, 64, 1}, {});
  expect_near_stepping({2, 128, 128}, 300, {0, 130, 1}, {});
}

// The bits are the same in any order of threads, in any batch and with either form of state.
TEST(CudaChunks, CuttingAPromptBetweenChunksDoesNotChangeBits) {
  const HeadShape shape = {2, 20, 36};
  constexpr int kLength = 300;
  Sequences whole(shape, kLength, {.chunks = true}, ThreadOrder::kForward);
  run(whole, {{kLength, kLength, kLength}});
  for (const bool replay : {false, true}) {
    const CudaOptions options = {.replay = replay, .chunks = true};
    Sequences cut(shape, kLength, options, ThreadOrder::kShuffled);
    run(cut, {{64, 128, 0}, {192, 64, 0}, {0, 64, 256}, {0, 0, 0}, {kLength, kLength, kLength}});
    EXPECT_TRUE(same_bits(cut.out(), whole.out())) << replay;
    Sequences turned(shape, kLength, options, ThreadOrder::kBackward);
    run(turned, {{0, 0, 64}, {256, 64, 64}, {kLength, kLength, kLength}});
    EXPECT_TRUE(same_bits(turned.out(), whole.out())) << replay;
    for (int i = 0; i < Sequences::kCount; ++i) {
      for (int head = 0; head < shape.heads; ++head) {
        EXPECT_TRUE(same_bits(turned.state(i, head), cut.state(i, head)));
        EXPECT_TRUE(replay || same_bits(cut.state(i, head), whole.state(i, head)));
      }
    }
  }
}

// Inputs before and after whole chunks are stepped. A prompt that is shorter than a chunk, or cut
// inside one, has the bits of stepping there.
TEST(CudaChunks, OnlyWholeChunksOfPositionsAreTaken) {
  const HeadShape shape = {1, 16, 16};
  constexpr int kLength = 127;
  Sequences stepped(shape, kLength, {}, ThreadOrder::kForward);
  run(stepped, {{1, 1, 1}});
  Sequences found(shape, kLength, {.chunks = true}, ThreadOrder::kForward);
  run(found, {{63, 1, 40}, {kLength, kLength, kLength}});  // no call contains a whole chunk
  EXPECT_TRUE(same_bits(found.out(), stepped.out()));
}

// The first step reports it, even if no prompt has a whole chunk.
TEST(CudaChunks, TheFirstStepRefusesHeadsTooLargeForChunks) {
  constexpr int kSize = 400;
  const auto backend = make_host_backend({.chunks = true});
  const Recurrence recurrence = {.heads = 1, .dk = kSize, .dv = 8};
  const Buffer state = backend->allocate(backend->state_bytes(recurrence), Memory::kDevice);
  Guarded q(1, kSize), k(1, kSize), v(1, 8), out(1, 8);
  for (Guarded* at : {&q, &k, &v}) at->fill(random_floats(at->cols(), 5));
  int32_t slot = 0;
  const int32_t first[] = {0, 1};
  const Control control;
  backend->recur({&slot, first, 1}, &control, recurrence, {q.view(), k.view(), v.view()},
                 {state.data(), state.bytes(), 0}, out.view());
  EXPECT_EQ(backend->done(0).status(),
            Status(Code::kFailedPrecondition,
                   "the model's sizes are too large for this GPU: a block of a kernel would need "
                   "278336 bytes of shared memory, and has 232448: use prompts steps"));
}

TEST(CudaChunks, LieAtMultiplesOfTheirLength) {
  const auto at = [](int64_t position, int inputs, int begin, int count) {
    const Chunks chunks = chunks_of(position, inputs);
    return chunks.begin == begin && chunks.inputs == count;
  };
  EXPECT_TRUE(at(0, 64, 0, 64));
  EXPECT_TRUE(at(0, 63, 63, 0));
  EXPECT_TRUE(at(1, 126, 126, 0));
  EXPECT_TRUE(at(1, 127, 63, 64));
  EXPECT_TRUE(at(63, 200, 1, 192));
  EXPECT_TRUE(at(int64_t{1} << 40, 130, 0, 128));
}

}  // namespace
}  // namespace runnel::cuda
