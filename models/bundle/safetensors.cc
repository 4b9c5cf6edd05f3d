#include "models/bundle/safetensors.h"

#include <openssl/evp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"

namespace runnel {
namespace {

using Tensors = std::map<std::string, StoredTensor, std::less<>>;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kLengthBytes = 8;  // of the header's length, before the header
constexpr int64_t kMaxHeaderValues = 1 << 20;
constexpr int kHeaderDepth = 3;  // header, tensor, shape
constexpr int64_t kMaxTensorName = 512;
constexpr int64_t kMaxRank = 8;

struct TypeName {
  std::string_view name;
  StoredType type;
  int64_t bytes;
};
constexpr std::array kTypes = {TypeName{"F32", StoredType::kF32, 4},
                               TypeName{"F16", StoredType::kF16, 2},
                               TypeName{"BF16", StoredType::kBF16, 2}};

const TypeName& type_name(StoredType type) { return kTypes[static_cast<size_t>(type)]; }

Status fault(const std::string& file, std::string_view tensor, const std::string& what) {
  return invalid_argument(file + ": tensor " + quote(tensor) + ": " + what);
}

// The product of the sizes, or -1 when one is negative or the product does not fit.
int64_t product(std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return elements;
}

// A list of integers >= 0. "" or what is wrong with it.
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
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& known) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == known.name;
  });
  if (found == kTypes.end()) return "dtype: expected F32, F16 or BF16, found " + describe(dtype);
  type = found->type;
  return "";
}

// Fills `tensor` from its entry in the header. "" or what is wrong with it.
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
  const TypeName& type = type_name(tensor.type);
  int64_t bytes = 0;
  if (elements < 0 || __builtin_mul_overflow(elements, type.bytes, &bytes)) {
    return "shape " + shape_text(tensor.shape) + " is too large; expected less than 2^63 bytes";
  }
  if (bytes != tensor.end - tensor.begin) {
    return "shape " + shape_text(tensor.shape) + " of " + std::string(type.name) + " takes " +
           std::to_string(bytes) + " bytes; data_offsets " + shape_text(offsets) + " hold " +
           std::to_string(tensor.end - tensor.begin);
  }
  return "";
}

// The tensors must follow one another from the first byte of the data to the last.
Status check_layout(const Tensors& tensors, int64_t data_bytes, const std::string& file) {
  std::vector<const Tensors::value_type*> in_order;
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
      return fault(file, name,
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

float widen_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact
    const float size = std::ldexp(static_cast<float>(fraction), -24);
    return sign == 0 ? size : -size;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // bias 15 to bias 127
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float widen_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

// The data may stand at any byte: memcpy, never a cast.
void widen(const std::byte* from, StoredType type, std::vector<float>& out) {
  if (type == StoredType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, from + 2 * i, 2);
    out[i] = type == StoredType::kF16 ? widen_f16(half) : widen_bf16(half);
  }
}

std::string not_finite(float value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "infinity" : "-infinity";
}

// Where element number `flat` stands in a tensor of this shape.
std::vector<int64_t> index_of(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

}  // namespace

int64_t StoredTensor::elements() const {
  const int64_t elements = product(shape);
  check(elements >= 0, "a parsed shape has been checked");
  return elements;
}

Result<Tensors> parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                         const std::string& file) {
  if (json.empty() || json[0] != '{') {
    return invalid_argument(file + ": the header starts with " + quote(json.substr(0, 1)) +
                            "; expected '{', as in every safetensors file");
  }
  const Result<Json> tree =
      parse_json(json, file, {kMaxSafetensorsHeaderBytes, kMaxHeaderValues, kHeaderDepth});
  if (!tree.ok()) return tree.status();
  Tensors tensors;
  for (const auto& [name, entry] : tree->items()) {
    if (name == "__metadata__") {
      if (Status status = check_metadata(entry, file); !status.ok()) return status;
      continue;
    }
    if (name.empty() || std::ssize(name) > kMaxTensorName) {
      return fault(file, name,
                   "expected a name of 1 to " + std::to_string(kMaxTensorName) + " bytes, found " +
                       std::to_string(name.size()));
    }
    StoredTensor tensor;
    if (std::string error = read_entry(entry, data_bytes, tensor); !error.empty()) {
      return fault(file, name, error);
    }
    tensors.emplace(name, std::move(tensor));
  }
  if (Status status = check_layout(tensors, data_bytes, file); !status.ok()) return status;
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<RegularFile> opened = RegularFile::open(path);
  if (!opened.ok()) return opened.status();
  const int64_t bytes = opened->bytes();
  if (bytes < kLengthBytes) {
    return invalid_argument(path + ": " + std::to_string(bytes) +
                            " bytes; expected at least 8, the header's length");
  }
  // Private: a mapping that nobody writes; its pages are shared with the file cache.
  void* const map =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE, opened->descriptor(), 0);
  if (map == MAP_FAILED) {
    return Status(Code::kResourceExhausted,
                  path + ": cannot map " + std::to_string(bytes) +
                      " bytes: " + std::generic_category().message(errno));
  }
  SafetensorsFile file;
  file.path_ = path;
  file.map_ = static_cast<const std::byte*>(map);
  file.map_bytes_ = bytes;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.map_, kLengthBytes);
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes, bytes - kLengthBytes);
  if (header_bytes > static_cast<uint64_t>(most)) {
    return invalid_argument(path + ": the header's length is " + std::to_string(header_bytes) +
                            " bytes; expected at most " + std::to_string(most) + " in a file of " +
                            std::to_string(bytes) + "; is it a safetensors file, and complete?");
  }
  file.data_begin_ = kLengthBytes + static_cast<int64_t>(header_bytes);
  const std::string_view header(static_cast<const char*>(map) + kLengthBytes,
                                static_cast<size_t>(header_bytes));
  Result<Tensors> tensors = parse_safetensors_header(header, bytes - file.data_begin_, path);
  if (!tensors.ok()) return tensors.status();
  file.tensors_ = std::move(*tensors);
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      map_(std::exchange(other.map_, nullptr)),
      map_bytes_(other.map_bytes_),
      data_begin_(other.data_begin_),
      tensors_(std::move(other.tensors_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(data_begin_, other.data_begin_);
  std::swap(tensors_, other.tensors_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) {
    ::munmap(const_cast<std::byte*>(map_), static_cast<size_t>(map_bytes_));
  }
}

Result<std::vector<float>> SafetensorsFile::read(std::string_view name,
                                                 std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return fault(path_, name, "expected shape " + shape_text(shape) + ", found no such tensor");
  }
  const StoredTensor& tensor = found->second;
  if (!std::ranges::equal(tensor.shape, shape)) {
    return fault(path_, name,
                 "expected shape " + shape_text(shape) + ", found " + shape_text(tensor.shape));
  }
  std::vector<float> values;
  try {
    values.resize(static_cast<size_t>(tensor.elements()));
  } catch (const std::exception&) {  // bad_alloc, length_error: the file decides the size
    return Status(Code::kResourceExhausted, path_ + ": tensor " + quote(name) + ": no memory for " +
                                                std::to_string(tensor.elements()) +
                                                " fp32 elements");
  }
  widen(map_ + data_begin_ + tensor.begin, tensor.type, values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return fault(path_, name,
                 "element " + shape_text(index_of(static_cast<int64_t>(i), shape)) + " is " +
                     not_finite(values[i]) + "; expected a finite number");
  }
  return values;
}

std::string SafetensorsFile::digest() const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned int hash_bytes = 0;
  const int done = EVP_Digest(map_, static_cast<size_t>(map_bytes_), hash.data(), &hash_bytes,
                              EVP_sha256(), nullptr);
  check(done == 1, "SHA-256 of mapped memory cannot fail in a working library");
  return hex(as_text(std::span(hash).first(hash_bytes)));
}

}  // namespace runnel
