// The state as replay keeps it gives the bits of the plain form, whatever the shape and however a
// sequence is cut, and is what kernels/cuda/replay.h says at every position.
#include "kernels/cuda/replay.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "kernels/cuda/elementary.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/host_device.h"

namespace runnel::cuda {
namespace {

struct Shape {
  int heads, dk, dv;
  int64_t floats(StateForm form) const { return heads * state_floats(form, dk, dv); }
  Recurrence recurrence() const { return {.heads = heads, .dk = dk, .dv = dv}; }
};

// Some sequences of one length in slots that are not in their order, and where each of them stands.
class Sequences {
 public:
  static constexpr int kCount = 3;
  static constexpr int kLength = 37;

  Sequences(const Shape& shape, bool replays, ThreadOrder order)
      : shape_(shape),
        form_(replays ? StateForm::kReplay : StateForm::kPlain),
        backend_({.replay = replays}, order),
        slot_bytes_(backend_.state_bytes(shape.recurrence())),
        states_(backend_.allocate(kCount * slot_bytes_, Memory::kDevice)),
        q_(random_floats(int64_t{kCount} * kLength * shape.heads * shape.dk, 1)),
        k_(random_floats(int64_t{kCount} * kLength * shape.heads * shape.dk, 2)),
        v_(random_floats(int64_t{kCount} * kLength * shape.heads * shape.dv, 3)),
        out_(v_.size(), NAN) {}

  // Sequence i goes on by lengths[i] inputs, all of them in one call.
  void advance(const std::vector<int>& lengths) {
    std::vector<int32_t> slots, first = {0};
    std::vector<float> q, k, v;
    for (int i = 0; i < kCount; ++i) {
      slots.push_back(slot(i));
      first.push_back(first.back() + lengths[i]);
      append(q_, i, shape_.dk, lengths[i], q);
      append(k_, i, shape_.dk, lengths[i], k);
      append(v_, i, shape_.dv, lengths[i], v);
    }
    const int inputs = first.back();
    std::vector<float> out(int64_t{inputs} * shape_.heads * shape_.dv, NAN);
    const auto view = [&](std::vector<float>& of, int size) {
      return View{of.data(), DType::kF32, inputs, shape_.heads * size, shape_.heads * size};
    };
    backend_.recur({slots.data(), first.data(), kCount}, control_, shape_.recurrence(),
                   {view(q, shape_.dk), view(k, shape_.dk), view(v, shape_.dv)},
                   {states_.data(), slot_bytes_, 0}, view(out, shape_.dv));
    const int64_t width = int64_t{shape_.heads} * shape_.dv;
    for (int i = 0; i < kCount; ++i) {
      std::copy_n(out.begin() + first[i] * width, lengths[i] * width, at(out_, i, shape_.dv));
      control_[slot(i)].position += lengths[i];
    }
  }

  int position(int sequence) const { return static_cast<int>(control_[slot(sequence)].position); }
  const std::vector<float>& out() const { return out_; }
  std::vector<float> state(int sequence, int head) const {
    const auto* floats =
        reinterpret_cast<const float*>(states_.data() + slot(sequence) * slot_bytes_);
    const int64_t size = state_floats(form_, shape_.dk, shape_.dv);
    return {floats + head * size, floats + (head + 1) * size};
  }
  // {phi(k), v} of an input.
  std::vector<float> entry(int sequence, int head, int position) const {
    const int64_t row = int64_t{sequence} * kLength + position;
    const float* k = &k_[(row * shape_.heads + head) * shape_.dk];
    const float* v = &v_[(row * shape_.heads + head) * shape_.dv];
    std::vector<float> entry(k, k + shape_.dk);
    for (float& x : entry) x = phi(x);
    entry.insert(entry.end(), v, v + shape_.dv);
    return entry;
  }

 private:
  static int slot(int sequence) { return (sequence + 1) % kCount; }
  std::vector<float>::iterator at(std::vector<float>& of, int sequence, int size) {
    return of.begin() + (int64_t{sequence} * kLength + position(sequence)) * shape_.heads * size;
  }
  void append(std::vector<float>& from, int sequence, int size, int count, std::vector<float>& to) {
    const auto begin = at(from, sequence, size);
    to.insert(to.end(), begin, begin + int64_t{count} * shape_.heads * size);
  }

  const Shape shape_;
  const StateForm form_;
  DeviceBackend<HostDevice> backend_;
  const int64_t slot_bytes_;
  Buffer states_;
  std::vector<float> q_, k_, v_, out_;
  Control control_[kCount];
};

// The plain form, one input at a time, and its states at every position.
struct Plain {
  explicit Plain(const Shape& shape) : sequences(shape, false, ThreadOrder::kForward) {
    for (int position = 0; position <= Sequences::kLength; ++position) {
      states.emplace_back();
      for (int i = 0; i < Sequences::kCount; ++i) {
        for (int head = 0; head < shape.heads; ++head) {
          states.back().push_back(sequences.state(i, head));
        }
      }
      if (position < Sequences::kLength) sequences.advance({1, 1, 1});
    }
  }
  Sequences sequences;
  std::vector<std::vector<std::vector<float>>> states;  // [position][sequence * heads + head]
};

// (S, z) are those of the last multiple of kReplay; the log has what came since, and behind it what
// came before.
void expect_state(const Shape& shape, const Plain& plain, const Sequences& found, int sequence,
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

void expect_bits_of_plain(const Shape& shape, ThreadOrder order) {
  const Plain plain(shape);
  std::mt19937 random(4);
  Sequences found(shape, true, order);
  bool done = false;
  while (!done) {
    done = true;
    std::vector<int> lengths;
    for (int i = 0; i < Sequences::kCount; ++i) {
      const int most = Sequences::kLength - found.position(i);
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
  for (const Shape shape : {Shape{2, 32, 32}, Shape{1, 16, 8}, Shape{2, 30, 32}, Shape{1, 1, 1},
                            Shape{1, 64, 64}, Shape{1, 40, 128}, Shape{1, 128, 128},
                            Shape{2, 20, 36}, Shape{3, 17, 5}, Shape{1, 33, 150}}) {
    expect_bits_of_plain(shape, ThreadOrder::kShuffled);
  }
}

TEST(CudaReplay, TheOrderOfThreadsDoesNotMatter) {
  for (const auto order : {ThreadOrder::kForward, ThreadOrder::kBackward}) {
    for (const Shape shape : {Shape{2, 32, 32}, Shape{1, 20, 36}, Shape{1, 3, 7}}) {
      expect_bits_of_plain(shape, order);
    }
  }
}

TEST(CudaReplay, AStateHasRoomForItsLog) {
  const DeviceBackend<HostDevice> plain({}, ThreadOrder::kForward);
  const DeviceBackend<HostDevice> replay({.replay = true}, ThreadOrder::kForward);
  const Recurrence recurrence = {.heads = 8, .dk = 32, .dv = 32};
  EXPECT_EQ(plain.state_bytes(recurrence), 8 * (32 * 32 + 32) * 4);
  EXPECT_EQ(replay.state_bytes(recurrence), 8 * (32 * 32 + 32 + 7 * (32 + 32)) * 4);
}

// S is one page here, which can be written at a flush alone: anything else ends the test.
TEST(CudaReplay, OnlyAFlushWritesTheState) {
  constexpr int kSize = 32;
  const int64_t page = kSize * kSize * 4;
  if (sysconf(_SC_PAGESIZE) != page) GTEST_SKIP() << "pages are not of 4 KiB here";
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  DeviceBackend<HostDevice> backend({.replay = true}, ThreadOrder::kShuffled);
  Guarded q(1, kSize), k(1, kSize), v(1, kSize), out(1, kSize);
  for (Guarded* at : {&q, &k, &v}) at->fill(random_floats(kSize, 5));
  int32_t slot = 0;
  const int32_t first[] = {0, 1};
  Control control;
  for (; control.position < 3 * kReplay; ++control.position) {
    const bool flushes = (control.position + 1) % kReplay == 0;
    ASSERT_EQ(mprotect(memory, page, flushes ? PROT_READ | PROT_WRITE : PROT_READ), 0);
    backend.recur({&slot, first, 1}, &control, {.heads = 1, .dk = kSize, .dv = kSize},
                  {q.view(), k.view(), v.view()}, {static_cast<std::byte*>(memory), 2 * page, 0},
                  out.view());
  }
  const float* s = static_cast<float*>(memory);
  EXPECT_NEAR(s[0], 3 * kReplay * phi(k.at(0, 0)) * v.at(0, 0), 1e-4);
  EXPECT_EQ(munmap(memory, 2 * page), 0);
}

}  // namespace
}  // namespace runnel::cuda
