#include "models/bundle/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kMaxHeaderValues = 1 << 20;
constexpr int kHeaderDepth = 3;  // header, tensor, shape
constexpr int64_t kMaxTensorName = 512;
constexpr int64_t kMaxRank = 8;

// In the order of StoredType.
constexpr std::array<std::string_view, 3> kTypes = {"F32", "F16", "BF16"};

// The product of the sizes, or -1 if a size is negative or the product overflows.
int64_t product(std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return elements;
}

// Reads a list of integers >= 0. Returns "", or what is wrong with it.
std::string read_sizes(const Json& list, std::vector<int64_t>& sizes) {
  if (!list.is_array()) return "expected an array of integers, found " + describe(list);
  if (std::ssize(list) > kMaxRank) {
    return "expected at most " + std::to_string(kMaxRank) + " dimensions, found " +
           std::to_string(list.size());
  }
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return "expected integers from 0 to 2^63 - 1, found " + describe(item);
    }
    sizes.push_back(item.get<int64_t>());
  }
  return "";
}

std::string read_type(const Json& dtype, StoredType& type) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(), [&](std::string_view known) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == known;
  });
  if (found == kTypes.end()) return "dtype: expected F32, F16 or BF16, found " + describe(dtype);
  type = static_cast<StoredType>(found - kTypes.begin());
  return "";
}

// Fills `tensor` from its entry in the header. Returns "", or what is wrong with it.
std::string read_entry(const Json& entry, int64_t data_bytes, StoredTensor& tensor) {
  if (!entry.is_object()) {
    return "expected an object with dtype, shape and data_offsets, found " + describe(entry);
  }
  for (const auto& item : entry.items()) {
    const std::string& key = item.key();
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return "unknown key " + quote(key) + "; expected dtype, shape and data_offsets";
    }
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) return std::string(key) + " is missing";
  }
  if (std::string error = read_type(entry["dtype"], tensor.type); !error.empty()) return error;
  if (std::string error = read_sizes(entry["shape"], tensor.shape); !error.empty()) {
    return "shape: " + error;
  }
  std::vector<int64_t> offsets;
  if (std::string error = read_sizes(entry["data_offsets"], offsets); !error.empty()) {
    return "data_offsets: " + error;
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return "data_offsets: expected [begin, end] with begin <= end <= " +
           std::to_string(data_bytes) + ", the bytes of data in the file, found " +
           shape_text(offsets);
  }
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  const int64_t elements = product(tensor.shape);
  int64_t bytes = 0;
  if (elements < 0 || __builtin_mul_overflow(elements, bytes_of(tensor.type), &bytes)) {
    return "shape " + shape_text(tensor.shape) + " is too large; expected less than 2^63 bytes";
  }
  if (bytes != tensor.end - tensor.begin) {
    return "shape " + shape_text(tensor.shape) + " of " +
           std::string(kTypes[static_cast<size_t>(tensor.type)]) + " takes " +
           std::to_string(bytes) + " bytes; data_offsets " + shape_text(offsets) + " hold " +
           std::to_string(tensor.end - tensor.begin);
  }
  return "";
}

// The tensors must follow one another from the first byte of the data to the last.
Status check_layout(const StoredTensors& tensors, int64_t data_bytes, const std::string& file) {
  std::vector<const StoredTensors::value_type*> in_order;
  in_order.reserve(tensors.size());
  for (const auto& item : tensors) in_order.push_back(&item);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t end = 0;
  std::string before = "the header";
  for (const auto* item : in_order) {
    const auto& [name, tensor] = *item;
    if (tensor.begin != end) {
      const char* what = tensor.begin < end ? "overlaps " : "leaves a hole after ";
      return tensor_fault(file, name,
                          what + before + "; expected to begin at byte " + std::to_string(end) +
                              " of the data, found " + std::to_string(tensor.begin));
    }
    end = tensor.end;
    before = "tensor " + quote(name);
  }
  if (end == data_bytes) return {};
  return invalid_argument(file + ": " + std::to_string(data_bytes) +
                          " bytes of data follow the header; expected " + std::to_string(end) +
                          ", where " + before + " ends");
}

Status check_metadata(const Json& metadata, const std::string& file) {
  const std::string where = file + ": __metadata__: expected an object of strings, found ";
  if (!metadata.is_object()) return invalid_argument(where + describe(metadata));
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      return invalid_argument(where + describe(value) + " under " + quote(key));
    }
  }
  return {};
}

}  // namespace

int64_t StoredTensor::elements() const {
  const int64_t elements = product(shape);
  check(elements >= 0, "a parsed shape has been checked");
  return elements;
}

Result<StoredTensors> parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                               const std::string& file) {
  if (json.empty() || json[0] != '{') {
    return invalid_argument(file + ": the header starts with " + quote(json.substr(0, 1)) +
                            "; expected '{', as in every safetensors file");
  }
  const Result<Json> tree =
      parse_json(json, file, {kMaxSafetensorsHeaderBytes, kMaxHeaderValues, kHeaderDepth});
  if (!tree.ok()) return tree.status();
  StoredTensors tensors;
  for (const auto& [name, entry] : tree->items()) {
    if (name == "__metadata__") {
      if (Status status = check_metadata(entry, file); !status.ok()) return status;
      continue;
    }
    if (name.empty() || std::ssize(name) > kMaxTensorName) {
      return tensor_fault(file, name,
                          "expected a name of 1 to " + std::to_string(kMaxTensorName) +
                              " bytes, found " + std::to_string(name.size()));
    }
    StoredTensor tensor;
    if (std::string error = read_entry(entry, data_bytes, tensor); !error.empty()) {
      return tensor_fault(file, name, error);
    }
    tensors.emplace(name, std::move(tensor));
  }
  if (Status status = check_layout(tensors, data_bytes, file); !status.ok()) return status;
  return tensors;
}

Result<Tensor> find_tensor(const StoredTensors& tensors, std::span<const std::byte> data,
                           std::string_view name, std::span<const int64_t> shape,
                           const std::string& file) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return tensor_fault(file, name,
                        "expected shape " + shape_text(shape) + ", found no such tensor");
  }
  const StoredTensor& stored = found->second;
  if (!std::ranges::equal(stored.shape, shape)) {
    return tensor_fault(
        file, name, "expected shape " + shape_text(shape) + ", found " + shape_text(stored.shape));
  }
  const auto bytes = data.subspan(static_cast<size_t>(stored.begin),
                                  static_cast<size_t>(stored.end - stored.begin));
  return Tensor{stored.type, stored.shape, bytes};
}

}  // namespace runnel
