#include "models/weights.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace runnel {
namespace {

constexpr int64_t kPiece = 1 << 18;  // elements that are widened at a time

bool can_be_used_in_place(const Tensor& tensor) {
  return tensor.type == StoredType::kF32 &&
         reinterpret_cast<uintptr_t>(tensor.bytes.data()) % alignof(float) == 0;
}

// The elements of all tensors, one after another, as fp32: where they lie or in `room`.
const float* as_fp32(std::span<const Tensor* const> tensors, std::vector<float>& room) {
  if (tensors.size() == 1 && can_be_used_in_place(*tensors[0])) {
    return reinterpret_cast<const float*>(tensors[0]->bytes.data());
  }
  int64_t elements = 0;
  for (const Tensor* tensor : tensors) elements += tensor->elements();
  room.resize(elements);
  std::span<float> left = room;
  for (const Tensor* tensor : tensors) {
    widen(*tensor, 0, left.first(tensor->elements()));
    left = left.subspan(tensor->elements());
  }
  return room.data();
}

// The backend only reads from a span that it copies from.
Span host_span(std::span<const float> from) {
  return {const_cast<std::byte*>(std::as_bytes(from).data()),
          static_cast<int64_t>(from.size_bytes())};
}

}  // namespace

const Tensor& WeightReader::tensor(const std::string& name) const {
  const auto found = bundle_.tensors.find(name);
  check(found != bundle_.tensors.end(), "load_bundle() has checked the names");
  return found->second;
}

Matrix WeightReader::matrix(const std::string& name) const {
  const Tensor& from = tensor(name);
  const int64_t elements = from.elements();
  const int64_t cols = from.shape.back();
  Matrix matrix = make_matrix(backend_, DType::kF32, static_cast<int>(elements / cols),
                              static_cast<int>(cols), Memory::kDevice);
  std::vector<float> piece(std::min(elements, kPiece));
  for (int64_t at = 0; at < elements; at += kPiece) {
    const std::span<float> values = std::span(piece).first(std::min(kPiece, elements - at));
    widen(from, at, values);
    const Span to = host_span(values);
    backend_.copy(to, {matrix.buffer.data() + at * int64_t{sizeof(float)}, to.bytes});
  }
  bundle_.memory->release(from.bytes);
  return matrix;
}

Weight WeightReader::linear(const std::vector<std::string>& names, Precision precision) const {
  std::vector<const Tensor*> weights;
  std::vector<const Tensor*> biases;
  int64_t out = 0;
  for (const std::string& name : names) {
    weights.push_back(&tensor(name + ".weight"));
    biases.push_back(&tensor(name + ".bias"));
    out += weights.back()->shape[0];
  }
  const auto rows = static_cast<int>(out);
  const auto in = static_cast<int>(weights[0]->shape[1]);
  std::vector<float> room;
  std::vector<float> bias_room;
  Weight packed = backend_.pack({as_fp32(weights, room), rows, in},
                                {as_fp32(biases, bias_room), 1, rows}, precision);
  for (const Tensor* weight : weights) bundle_.memory->release(weight->bytes);
  return packed;
}

}  // namespace runnel
