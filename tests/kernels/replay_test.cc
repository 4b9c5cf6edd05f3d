// With replay, outputs have the bits of the plain form for any shape and any cut of a sequence, and
// the state at every position has the contents that kernels/cuda/replay.h documents.
#include "kernels/cuda/replay.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "kernels/cuda/elementary.h"
#include "tests/kernels/recur_sequences.h"

namespace runnel::cuda {
namespace {

constexpr int kLength = 37;

// The plain form, run one input at a time, with its states at every position.
struct Plain {
  Plain(const HeadShape& shape, Where where) : sequences(shape, kLength, {}, where) {
    for (int position = 0; position <= kLength; ++position) {
      states.emplace_back();
      for (int i = 0; i < Sequences::kCount; ++i) {
        for (int head = 0; head < shape.heads; ++head) {
          states.back().push_back(sequences.state(i, head));
        }
      }
      if (position < kLength) sequences.advance({1, 1, 1});
    }
  }
  Sequences sequences;
  std::vector<std::vector<std::vector<float>>> states;  // [position][sequence * heads + head]
};

// (S, z) are from the last multiple of kReplay. The log has the entries since then, followed by
// older entries.
void expect_state(const HeadShape& shape, const Plain& plain, const Sequences& found, int sequence,
                  int head) {
  const int position = found.position(sequence);
  const int flushed = position / kReplay * kReplay;
  std::vector<float> expected = plain.states[flushed][sequence * shape.heads + head];
  for (int i = 0; i < kReplay - 1; ++i) {
    const int at = flushed + i < position ? flushed + i : flushed + i - kReplay;
    const std::vector<float> entry =
        at < 0 ? std::vector<float>(shape.dk + shape.dv) : found.entry(sequence, head, at);
    expected.insert(expected.end(), entry.begin(), entry.end());
  }
  EXPECT_TRUE(same_bits(found.state(sequence, head), expected))
      << shape.dk << " x " << shape.dv << " sequence " << sequence << " at " << position;
}

void expect_bits_of_plain(const HeadShape& shape, Where where) {
  const Plain plain(shape, where ? ThreadOrder::kForward : where);
  std::mt19937 random(4);
  Sequences found(shape, kLength, {.replay = true}, where);
  bool done = false;
  while (!done) {
    done = true;
    std::vector<int> lengths;
    for (int i = 0; i < Sequences::kCount; ++i) {
      const int most = kLength - found.position(i);
      const int length = random() % 3 == 0 ? static_cast<int>(random() % 20) : 1;
      lengths.push_back(std::min(most, length));
      done = done && lengths.back() == most;
    }
    found.advance(lengths);
    for (int i = 0; i < Sequences::kCount; ++i) {
      for (int head = 0; head < shape.heads; ++head) expect_state(shape, plain, found, i, head);
    }
  }
  EXPECT_TRUE(same_bits(found.out(), plain.sequences.out())) << shape.dk << " x " << shape.dv;
}

TEST(CudaReplay, GivesTheBitsOfThePlainForm) {
  for (const HeadShape shape :
       {HeadShape{2, 32, 32}, HeadShape{1, 16, 8}, HeadShape{2, 30, 32}, HeadShape{1, 1, 1},
        HeadShape{1, 64, 64}, HeadShape{1, 40, 128}, HeadShape{1, 128, 128}, HeadShape{2, 20, 36},
        HeadShape{3, 17, 5}, HeadShape{1, 33, 150}}) {
    expect_bits_of_plain(shape, ThreadOrder::kShuffled);
  }
}

TEST(CudaReplay, TheOrderOfThreadsDoesNotMatter) {
  for (const auto order : {ThreadOrder::kForward, ThreadOrder::kBackward}) {
    for (const HeadShape shape : {HeadShape{2, 32, 32}, HeadShape{1, 20, 36}, HeadShape{1, 3, 7}}) {
      expect_bits_of_plain(shape, order);
    }
  }
}

TEST(GpuReplay, GivesTheBitsOfThePlainForm) {
  const auto backend = make_cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << backend.status().message();
  for (const HeadShape shape : {HeadShape{2, 32, 32}, HeadShape{1, 64, 64}, HeadShape{1, 128, 128},
                                HeadShape{2, 20, 36}, HeadShape{3, 17, 5}}) {
    expect_bits_of_plain(shape, {});
  }
}

TEST(CudaReplay, AStateHasRoomForItsLog) {
  const auto plain = make_host_backend();
  const auto replay = make_host_backend({.replay = true});
  const Recurrence recurrence = {.heads = 8, .dk = 32, .dv = 32};
  EXPECT_EQ(plain->state_bytes(recurrence), 8 * (32 * 32 + 32) * 4);
  EXPECT_EQ(replay->state_bytes(recurrence), 8 * (32 * 32 + 32 + 7 * (32 + 32)) * 4);
}

// The first step, which runs while loading, reports it. Chunks are refused, too.
TEST(CudaReplay, RefusesRecurrencesWithAGate) {
  for (const CudaOptions& options : {CudaOptions{.replay = true}, CudaOptions{.chunks = true}}) {
    const auto backend = make_host_backend(options);
    const Recurrence recurrence = {
        .heads = 1, .dk = 4, .dv = 4, .terms = LinearTerms{.gated = true}};
    const Buffer state = backend->allocate(backend->state_bytes(recurrence), Memory::kDevice);
    Guarded q(1, 4), k(1, 4), v(1, 4), gate(1, 1), out(1, 4);
    for (Guarded* at : {&q, &k, &v, &gate}) at->fill(random_floats(at->cols(), 5));
    int32_t slot = 0;
    const int32_t first[] = {0, 1};
    const Control control;
    backend->recur({&slot, first, 1}, &control, recurrence,
                   {q.view(), k.view(), v.view(), gate.view()}, {state.data(), state.bytes(), 0},
                   out.view());
    EXPECT_EQ(backend->done(0).status(),
              Status(Code::kFailedPrecondition,
                     "a model with a gate keeps its state plain and takes prompts in steps: use "
                     "gpu_state plain and prompts steps"));
  }
}

// S is one page here, which is writable only during a flush: any other write ends the test.
TEST(CudaReplay, OnlyAFlushWritesTheState) {
  constexpr int kSize = 32;
  const int64_t page = kSize * kSize * 4;
  if (sysconf(_SC_PAGESIZE) != page) GTEST_SKIP() << "pages are not of 4 KiB here";
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto backend = make_host_backend({.replay = true}, ThreadOrder::kShuffled);
  Guarded q(1, kSize), k(1, kSize), v(1, kSize), out(1, kSize);
  for (Guarded* at : {&q, &k, &v}) at->fill(random_floats(kSize, 5));
  int32_t slot = 0;
  const int32_t first[] = {0, 1};
  Control control;
  for (; control.position < 3 * kReplay; ++control.position) {
    const bool flushes = (control.position + 1) % kReplay == 0;
    ASSERT_EQ(mprotect(memory, page, flushes ? PROT_READ | PROT_WRITE : PROT_READ), 0);
    backend->recur({&slot, first, 1}, &control, {.heads = 1, .dk = kSize, .dv = kSize},
                   {q.view(), k.view(), v.view()}, {static_cast<std::byte*>(memory), 2 * page, 0},
                   out.view());
  }
  const float* s = static_cast<float*>(memory);
  EXPECT_NEAR(s[0], 3 * kReplay * phi(k.at(0, 0)) * v.at(0, 0), 1e-4);
  EXPECT_EQ(munmap(memory, 2 * page), 0);
}

}  // namespace
}  // namespace runnel::cuda
