#include "models/bundle/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/text.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kLengthBytes = 8;  // of the header's length, before the header
constexpr int64_t kMaxHeaderValues = 1 << 20;
constexpr int kHeaderDepth = 3;  // header, tensor, shape
constexpr int64_t kMaxTensorName = 512;
constexpr int64_t kMaxRank = 8;

// Bytes that are hashed at a time.
constexpr size_t kPiece = 16 << 20;

// In the order of StoredType.
constexpr std::array<std::string_view, 3> kTypes = {"F32", "F16", "BF16"};

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
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(), [&](std::string_view known) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == known;
  });
  if (found == kTypes.end()) return "dtype: expected F32, F16 or BF16, found " + describe(dtype);
  type = static_cast<StoredType>(found - kTypes.begin());
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
  Result<StoredTensors> tensors = parse_safetensors_header(header, bytes - file.data_begin_, path);
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

Result<Tensor> SafetensorsFile::read(std::string_view name, std::span<const int64_t> shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return fault(path_, name, "expected shape " + shape_text(shape) + ", found no such tensor");
  }
  const StoredTensor& stored = found->second;
  if (!std::ranges::equal(stored.shape, shape)) {
    return fault(path_, name,
                 "expected shape " + shape_text(shape) + ", found " + shape_text(stored.shape));
  }
  Tensor tensor = {
      stored.type,
      stored.shape,
      {map_ + data_begin_ + stored.begin, static_cast<size_t>(stored.end - stored.begin)}};
  const int64_t place = first_not_finite(tensor);
  release(tensor.bytes);
  if (place == tensor.elements()) return tensor;
  float value = 0.0F;
  widen(tensor, place, {&value, 1});
  return fault(path_, name,
               "element " + shape_text(index_of(place, shape)) + " is " + not_finite(value) +
                   "; expected a finite number");
}

// Pages that the bytes share with others go, too: whoever reads them has them mapped again.
void SafetensorsFile::release(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::byte* const begin = bytes.data() - reinterpret_cast<uintptr_t>(bytes.data()) % page;
  ::madvise(const_cast<std::byte*>(begin), static_cast<size_t>(bytes.data() + bytes.size() - begin),
            MADV_DONTNEED);
}

std::string SafetensorsFile::digest(const std::function<void(int64_t bytes)>& on_piece) const {
  Sha256 hash;
  std::span<const std::byte> left(map_, static_cast<size_t>(map_bytes_));
  while (!left.empty()) {
    const auto piece = left.first(std::min(left.size(), kPiece));
    hash.add(piece);
    release(piece);
    if (on_piece) on_piece(std::ssize(piece));
    left = left.subspan(piece.size());
  }
  return hex(as_text(hash.finish()));
}

}  // namespace runnel
