// Sequences that run through recur() with the GPU's kernels, cut as a test chooses.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "tests/kernels/fixture.h"
#include "tests/kernels/host_backend.h"
#include "tests/kernels/mirror_backend.h"

namespace runnel::cuda {

struct HeadShape {
  int heads, dk, dv;
  Recurrence recurrence() const { return {.heads = heads, .dk = dk, .dv = dv}; }
};

// The order of threads in a phase, for the kernels on the host. Without one: on the GPU.
using Where = std::optional<ThreadOrder>;
inline std::unique_ptr<Backend> make_recur_backend(const CudaOptions& options, Where where) {
  if (where) return make_host_backend(options, *where);
  return std::make_unique<MirrorBackend>(std::move(make_cuda_backend(options)).value());
}

// Three sequences of random inputs, in slots that have another order.
class Sequences {
 public:
  static constexpr int kCount = 3;

  Sequences(const HeadShape& shape, int length, const CudaOptions& options, Where where)
      : shape_(shape),
        length_(length),
        form_(options.replay ? StateForm::kReplay : StateForm::kPlain),
        backend_(make_recur_backend(options, where)),
        slot_bytes_(backend_->state_bytes(shape.recurrence())),
        states_(backend_->allocate(kCount * slot_bytes_, Memory::kHost)),
        q_(random_floats(int64_t{kCount} * length * shape.heads * shape.dk, 1)),
        k_(random_floats(int64_t{kCount} * length * shape.heads * shape.dk, 2)),
        v_(random_floats(int64_t{kCount} * length * shape.heads * shape.dv, 3)),
        out_(v_.size(), NAN) {}

  // Runs the next lengths[i] inputs of each sequence i, all of them in one call.
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
    backend_->recur({slots.data(), first.data(), kCount}, control_, shape_.recurrence(),
                    {view(q, shape_.dk), view(k, shape_.dk), view(v, shape_.dv)},
                    {states_.data(), slot_bytes_, 0}, view(out, shape_.dv));
    const int64_t width = int64_t{shape_.heads} * shape_.dv;
    for (int i = 0; i < kCount; ++i) {
      std::copy_n(out.begin() + first[i] * width, lengths[i] * width, at(out_, i, shape_.dv));
      control_[slot(i)].position += lengths[i];
    }
  }

  int position(int sequence) const { return static_cast<int>(control_[slot(sequence)].position); }
  int length() const { return length_; }
  const std::vector<float>& out() const { return out_; }
  std::vector<float> state(int sequence, int head) const {
    const auto* floats =
        reinterpret_cast<const float*>(states_.data() + slot(sequence) * slot_bytes_);
    const int64_t size = state_floats(form_, shape_.dk, shape_.dv);
    return {floats + head * size, floats + (head + 1) * size};
  }
  // {phi(k), v} of one input.
  std::vector<float> entry(int sequence, int head, int position) const {
    const int64_t row = int64_t{sequence} * length_ + position;
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
    return of.begin() + (int64_t{sequence} * length_ + position(sequence)) * shape_.heads * size;
  }
  void append(std::vector<float>& from, int sequence, int size, int count, std::vector<float>& to) {
    const auto begin = at(from, sequence, size);
    to.insert(to.end(), begin, begin + int64_t{count} * shape_.heads * size);
  }

  const HeadShape shape_;
  const int length_;
  const StateForm form_;
  const std::unique_ptr<Backend> backend_;
  const int64_t slot_bytes_;
  Buffer states_;
  std::vector<float> q_, k_, v_, out_;
  Control control_[kCount];
};

}  // namespace runnel::cuda
