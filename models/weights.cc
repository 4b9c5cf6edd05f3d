#include "models/weights.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"

namespace runnel {
namespace {

constexpr int64_t kPiece = 1 << 18;  // elements that are widened at a time

// The type in which a backend gets the tensor's elements: bf16 stays bf16, everything else becomes
// fp32.
DType type_of(const Tensor& tensor) {
  return tensor.type == StoredType::kBF16 ? DType::kBF16 : DType::kF32;
}

bool can_be_used_in_place(const Tensor& tensor) {
  return (tensor.type == StoredType::kF32 || tensor.type == StoredType::kBF16) &&
         reinterpret_cast<uintptr_t>(tensor.bytes.data()) % bytes_of(tensor.type) == 0;
}

// The elements of all tensors, one after another, in place or in `room`.
const void* in_one_place(std::span<const Tensor* const> tensors, DType type,
                         std::vector<std::byte>& room) {
  if (tensors.size() == 1 && can_be_used_in_place(*tensors[0]) && type == type_of(*tensors[0])) {
    return tensors[0]->bytes.data();
  }
  int64_t elements = 0;
  for (const Tensor* tensor : tensors) elements += tensor->elements();
  room.resize(elements * element_bytes(type));
  std::byte* to = room.data();
  for (const Tensor* tensor : tensors) {
    if (type == DType::kBF16) {
      std::ranges::copy(tensor->bytes, to);
    } else {
      widen(*tensor, 0, {reinterpret_cast<float*>(to), static_cast<size_t>(tensor->elements())});
    }
    to += tensor->elements() * element_bytes(type);
  }
  return room.data();
}

// The stored bytes of tensors of one type, one after another.
const void* stored_in_one_place(std::span<const Tensor* const> tensors,
                                std::vector<std::byte>& room) {
  if (tensors.size() == 1) return tensors[0]->bytes.data();
  for (const Tensor* tensor : tensors) {
    room.insert(room.end(), tensor->bytes.begin(), tensor->bytes.end());
  }
  return room.data();
}

// The same numbers in a plain type. Blocks are widened into `room`.
Tensor plain(const Tensor& tensor, std::vector<float>& room) {
  if (!is_blocks(tensor.type)) return tensor;
  room = widened(tensor);
  return {StoredType::kF32, tensor.shape, std::as_bytes(std::span(room))};
}

// Rows [first, first + rows) of the tensor.
Tensor rows_of(Tensor tensor, int64_t first, int64_t rows) {
  const size_t row_bytes = tensor.bytes.size() / tensor.shape[0];
  tensor.bytes = tensor.bytes.subspan(row_bytes * first, row_bytes * rows);
  tensor.shape[0] = rows;
  return tensor;
}

// The rows that each of `all` selects, copied to `room`, which is empty.
Tensor runs_of(const Tensor& tensor, std::span<const RowRuns> all, std::vector<std::byte>& room) {
  Tensor gathered = tensor;
  gathered.shape[0] = 0;
  for (const RowRuns& runs : all) {
    for (int64_t first = runs.first; first < tensor.shape[0]; first += runs.every) {
      const Tensor run = rows_of(tensor, first, runs.rows);
      room.insert(room.end(), run.bytes.begin(), run.bytes.end());
      gathered.shape[0] += runs.rows;
    }
  }
  gathered.bytes = room;
  return gathered;
}

// Writes a matrix [rows, cols] with its columns as rows. An element has kBytes bytes. The loops
// take 16 rows at a time, so that a cache line that is read or written is used completely while it
// is in the cache.
template <size_t kBytes>
void transpose(const std::byte* from, size_t rows, size_t cols, std::byte* to) {
  constexpr size_t kRowsAtOnce = 16;
  for (size_t first = 0; first < rows; first += kRowsAtOnce) {
    const size_t last = std::min(first + kRowsAtOnce, rows);
    for (size_t col = 0; col < cols; ++col) {
      for (size_t row = first; row < last; ++row) {
        std::memcpy(to + (col * rows + row) * kBytes, from + (row * cols + col) * kBytes, kBytes);
      }
    }
  }
}

// A matrix of plain numbers with its columns as rows, in `room`.
Tensor transposed(const Tensor& tensor, std::vector<std::byte>& room) {
  const auto rows = static_cast<size_t>(tensor.shape[0]);
  const auto cols = static_cast<size_t>(tensor.shape[1]);
  room.resize(tensor.bytes.size());
  const bool is_fp32 = tensor.type == StoredType::kF32;
  (is_fp32 ? transpose<4> : transpose<2>)(tensor.bytes.data(), rows, cols, room.data());
  return {tensor.type, {tensor.shape[1], tensor.shape[0]}, room};
}

// The backend only reads from a span that it copies from.
Span host_span(std::span<const std::byte> from) {
  return {const_cast<std::byte*>(from.data()), std::ssize(from)};
}

// A matrix of the tensor's size, whose columns are the tensor's last dimension.
Matrix matrix_for(const Tensor& tensor, DType type, Backend& backend) {
  const int64_t cols = tensor.shape.back();
  return make_matrix(backend, type, static_cast<int>(tensor.elements() / cols),
                     static_cast<int>(cols), Memory::kDevice);
}

}  // namespace

const Tensor& WeightReader::tensor(const std::string& name) const {
  const auto found = bundle_.tensors.find(name);
  check(found != bundle_.tensors.end(), "load_bundle() has checked the names");
  if (Status s = bundle_.memory->check(name); !s.ok()) throw WeightFault{std::move(s)};
  return found->second;
}

Matrix WeightReader::matrix(const std::string& name) const {
  const Tensor& from = tensor(name);
  const int64_t elements = from.elements();
  Matrix matrix = matrix_for(from, DType::kF32, backend_);
  std::vector<float> piece(std::min(elements, kPiece));
  for (int64_t at = 0; at < elements; at += kPiece) {
    const std::span<float> values = std::span(piece).first(std::min(kPiece, elements - at));
    widen(from, at, values);
    const Span to = host_span(std::as_bytes(values));
    backend_.copy(to, {matrix.buffer.data() + at * int64_t{sizeof(float)}, to.bytes});
  }
  bundle_.memory->release(from.bytes);
  return matrix;
}

Matrix WeightReader::table(const std::string& name) const {
  const Tensor& from = tensor(name);
  if (type_of(from) == DType::kF32 || !backend_.takes_bf16_tables()) return matrix(name);
  Matrix table = matrix_for(from, DType::kBF16, backend_);
  copy(from, table.buffer);
  return table;
}

Matrix WeightReader::vectors(const std::string& name, Embedding& embedding) const {
  const Tensor& from = tensor(name);
  Matrix vectors;
  if (is_blocks(from.type) && backend_.embeds_blocks(from.type)) {
    const auto cols = static_cast<int>(from.shape.back());
    vectors.buffer = backend_.allocate(std::ssize(from.bytes), Memory::kDevice);
    vectors.view = {vectors.buffer.data(), DType::kF32, static_cast<int>(from.elements() / cols),
                    cols, cols};
    copy(from, vectors.buffer);
    embedding.blocks = from.type;
  } else {
    vectors = table(name);
  }
  embedding.values = vectors.view;
  return vectors;
}

void WeightReader::copy(const Tensor& from, const Buffer& to) const {
  const Span bytes = host_span(from.bytes);
  backend_.copy(bytes, {to.data(), bytes.bytes});
  bundle_.memory->release(from.bytes);
}

HostTensor WeightReader::host_tensor(std::span<const Tensor* const> tensors, int rows, int in,
                                     Precision precision, std::vector<std::byte>& room) const {
  const StoredType stored = tensors[0]->type;
  const auto all = [&](StoredType type) {
    return std::ranges::all_of(tensors, [&](const Tensor* one) { return one->type == type; });
  };
  if (precision == Precision::kBlocks && backend_.takes_blocks(stored) && all(stored)) {
    return {stored_in_one_place(tensors, room), rows, in, DType::kF32, stored};
  }
  const DType type = all(StoredType::kBF16) ? DType::kBF16 : DType::kF32;
  return {in_one_place(tensors, type, room), rows, in, type};
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
  std::vector<std::byte> room;
  std::vector<std::byte> bias_room;
  const HostTensor bias = {in_one_place(biases, DType::kF32, bias_room), 1, rows};
  Weight packed = backend_.pack(host_tensor(weights, rows, in, precision, room), bias, precision);
  for (const Tensor* weight : weights) bundle_.memory->release(weight->bytes);
  return packed;
}

Weight WeightReader::pack(const LinearTensors& names, Precision precision) const {
  const Tensor& stored = tensor(names.weight);
  std::vector<std::byte> turned;
  std::vector<float> wide;
  std::vector<std::byte> gathered[2];
  const auto part = [&](const Tensor& whole, std::vector<std::byte>& at) {
    const RowRuns runs = {names.first, names.rows, names.every};
    if (names.every > 0) return runs_of(whole, {&runs, 1}, at);
    return names.rows > 0 ? rows_of(whole, names.first, names.rows) : whole;
  };
  Tensor weight = part(stored, gathered[0]);
  if (names.transposed) weight = transposed(plain(weight, wide), turned);
  const auto rows = static_cast<int>(weight.shape[0]);
  const auto in = static_cast<int>(weight.shape[1]);
  const std::vector<float> bias =
      names.bias.empty() ? std::vector<float>() : widened(part(tensor(names.bias), gathered[1]));
  const Tensor* const one = &weight;
  std::vector<std::byte> room;
  Weight packed = backend_.pack(host_tensor({&one, 1}, rows, in, precision, room),
                                {bias.empty() ? nullptr : bias.data(), 1, rows}, precision);
  bundle_.memory->release(stored.bytes);
  return packed;
}

Weight WeightReader::pack(const std::string& name, std::span<const RowRuns> runs,
                          Precision precision) const {
  const Tensor& stored = tensor(name);
  std::vector<std::byte> gathered;
  const Tensor weight = runs_of(stored, runs, gathered);
  const Tensor* const one = &weight;
  std::vector<std::byte> room;
  const HostTensor rows = host_tensor({&one, 1}, static_cast<int>(weight.shape[0]),
                                      static_cast<int>(weight.shape[1]), precision, room);
  Weight packed = backend_.pack(rows, {nullptr, 1, rows.rows}, precision);
  bundle_.memory->release(stored.bytes);
  return packed;
}

std::vector<Weight> WeightReader::pack_each(const LinearTensors& names, Precision precision) const {
  Tensor whole = tensor(names.weight);
  const int64_t in = whole.shape.back();
  whole.shape = {whole.elements() / in, in};
  std::vector<Weight> packed;
  for (int64_t first = names.first; first < whole.shape[0]; first += names.every) {
    const Tensor run = rows_of(whole, first, names.rows);
    const Tensor* const one = &run;
    std::vector<std::byte> room;
    const HostTensor weight =
        host_tensor({&one, 1}, static_cast<int>(names.rows), static_cast<int>(in), precision, room);
    packed.push_back(backend_.pack(weight, {nullptr, 1, weight.rows}, precision));
  }
  bundle_.memory->release(whole.bytes);
  return packed;
}

Weight WeightReader::pack(std::span<const float> weight, int rows, std::span<const float> bias,
                          Precision precision) const {
  const int cols = static_cast<int>(std::ssize(weight)) / rows;
  return backend_.pack({weight.data(), rows, cols}, {bias.empty() ? nullptr : bias.data(), 1, rows},
                       precision);
}

Matrix WeightReader::taps(const std::string& name) const {
  const std::vector<float> stored = numbers(name);
  const auto taps = static_cast<int>(tensor(name).shape.back());
  const int channels = static_cast<int>(std::ssize(stored)) / taps;
  std::vector<float> turned(stored.size());
  for (int channel = 0; channel < channels; ++channel) {
    for (int tap = 0; tap < taps; ++tap) {
      turned[tap * channels + channel] = stored[channel * taps + tap];
    }
  }
  return matrix_of(turned, taps);
}

std::vector<float> WeightReader::numbers(const std::string& name) const {
  const Tensor& from = tensor(name);
  std::vector<float> numbers = widened(from);
  bundle_.memory->release(from.bytes);
  return numbers;
}

Matrix WeightReader::rows(const std::vector<std::string>& names) const {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> row = numbers(name);
    all.insert(all.end(), row.begin(), row.end());
  }
  return matrix_of(all, static_cast<int>(names.size()));
}

Matrix WeightReader::matrix_of(std::span<const float> numbers, int rows) const {
  const int cols = static_cast<int>(std::ssize(numbers)) / rows;
  Matrix matrix = make_matrix(backend_, DType::kF32, rows, cols, Memory::kDevice);
  backend_.copy(host_span(std::as_bytes(numbers)), matrix.buffer.span());
  return matrix;
}

}  // namespace runnel
