#include "models/bundle/tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/blocks.h"

namespace runnel {
namespace {

float widen_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

// The data may begin at any byte, so it must be read with memcpy and not with a cast.
template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Whether all exponent bits are set in any of the elements.
template <typename T>
bool any_with(const std::byte* from, int64_t elements, T exponent) {
  T any = 0;  // of the elements' type, so that the compiler uses vectors
  for (int64_t i = 0; i < elements; ++i) {
    const T bits = load<T>(from + i * static_cast<int64_t>(sizeof(T))) & exponent;
    any |= bits == exponent ? T{1} : T{0};
  }
  return any != 0;
}

// The index of the first such element. Blocks are examined as a whole: without an exit from the
// loop, the compiler examines many elements at once.
template <typename T>
int64_t first_with(const std::byte* from, int64_t elements, T exponent) {
  constexpr int64_t kBlock = 1 << 12;
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  int64_t at = 0;
  while (at < elements && !any_with(from + at * kSize, std::min(kBlock, elements - at), exponent)) {
    at += kBlock;
  }
  while (at < elements && !any_with(from + at * kSize, 1, exponent)) ++at;
  return std::min(at, elements);
}

}  // namespace

void widen(const Tensor& tensor, int64_t first, std::span<float> out) {
  if (is_blocks(tensor.type)) return widen_blocks(tensor.type, tensor.bytes.data(), first, out);
  const std::byte* from = tensor.bytes.data() + first * bytes_of(tensor.type);
  if (tensor.type == StoredType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  const auto wide = tensor.type == StoredType::kF16 ? widened_f16 : widen_bf16;
  for (size_t i = 0; i < out.size(); ++i) out[i] = wide(load<uint16_t>(from + 2 * i));
}

std::vector<float> widened(const Tensor& tensor) {
  std::vector<float> values(tensor.elements());
  widen(tensor, 0, values);
  return values;
}

int64_t first_not_finite(const Tensor& tensor) {
  const std::byte* from = tensor.bytes.data();
  switch (tensor.type) {
    case StoredType::kF32:
      return first_with<uint32_t>(from, tensor.elements(), 0x7f800000);
    case StoredType::kF16:
      return first_with<uint16_t>(from, tensor.elements(), 0x7c00);
    case StoredType::kBF16:
      return first_with<uint16_t>(from, tensor.elements(), 0x7f80);
    default:
      return first_bad_block(tensor.type, from, tensor.elements());
  }
}

Tensor OwnedTensors::add(std::vector<int64_t> shape, std::vector<float> values) {
  values_.push_back(std::move(values));
  return {StoredType::kF32, std::move(shape), std::as_bytes(std::span(values_.back()))};
}

}  // namespace runnel
