#include "models/bundle/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "models/bundle/mapped_file.h"

namespace runnel {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

namespace bounds = gguf_bounds;

// In the order of their numbers in the format.
enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
// The bytes of a value by its type. A string has at least the 8 bytes of its length, and an array
// at least the 12 bytes of its type and its length.
constexpr std::array<int64_t, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// The tensor types of the format. A type without a StoredType is refused by name.
struct TensorType {
  uint32_t number;
  const char* name;
  std::optional<StoredType> type;
};
constexpr std::array kTensorTypes = {
    TensorType{0, "F32", StoredType::kF32},
    TensorType{1, "F16", StoredType::kF16},
    TensorType{2, "Q4_0", StoredType::kQ4_0},
    TensorType{3, "Q4_1", {}},
    TensorType{6, "Q5_0", StoredType::kQ5_0},
    TensorType{7, "Q5_1", {}},
    TensorType{8, "Q8_0", StoredType::kQ8_0},
    TensorType{9, "Q8_1", {}},
    TensorType{10, "Q2_K", {}},
    TensorType{11, "Q3_K", {}},
    TensorType{12, "Q4_K", StoredType::kQ4K},
    TensorType{13, "Q5_K", StoredType::kQ5K},
    TensorType{14, "Q6_K", StoredType::kQ6K},
    TensorType{15, "Q8_K", {}},
    TensorType{16, "IQ2_XXS", {}},
    TensorType{17, "IQ2_XS", {}},
    TensorType{18, "IQ3_XXS", {}},
    TensorType{19, "IQ1_S", {}},
    TensorType{20, "IQ4_NL", StoredType::kIq4Nl},
    TensorType{21, "IQ3_S", {}},
    TensorType{22, "IQ2_S", {}},
    TensorType{23, "IQ4_XS", {}},
    TensorType{24, "I8", {}},
    TensorType{25, "I16", {}},
    TensorType{26, "I32", {}},
    TensorType{27, "I64", {}},
    TensorType{28, "F64", {}},
    TensorType{29, "IQ1_M", {}},
    TensorType{30, "BF16", StoredType::kBF16},
    TensorType{34, "TQ1_0", {}},
    TensorType{35, "TQ2_0", {}},
    TensorType{39, "MXFP4", StoredType::kMxfp4},
    TensorType{40, "NVFP4", {}},
};

std::string known_types() {
  std::string names;
  for (const StoredFormat& format : kStoredFormats) {
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

// Sets `type` and returns "", or says what is wrong with the number.
std::string read_type(uint32_t number, StoredType& type) {
  const auto* const known = std::ranges::find(kTensorTypes, number, &TensorType::number);
  if (known != kTensorTypes.end() && known->type) {
    type = *known->type;
    return "";
  }
  const std::string found =
      known == kTensorTypes.end() ? "type number " + std::to_string(number) : known->name;
  return "expected a type of " + known_types() + ", found " + found +
         "; quantize the model to one of these types";
}

// The next multiple of `alignment`, a power of two. `at` is below 2^62.
int64_t padded(int64_t at, int64_t alignment) { return (at + alignment - 1) & -alignment; }

// Reads a header from its first to its last byte and keeps the first fault.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, const std::string& name)
      : file_(file),
        name_(name),
        limit_(std::min<int64_t>(std::ssize(file), bounds::kHeaderBytes)) {}

  Result<GgufHeader> read() {
    int64_t tensors = 0, pairs = 0;
    bool fine = read_start(tensors, pairs);
    for (int64_t i = 0; fine && i < pairs; ++i) fine = read_pair();
    fine = fine && check_whole() && read_alignment();
    for (int64_t i = 0; fine && i < tensors; ++i) fine = read_tensor_info();
    fine = fine && place_tensors();
    if (!fine) return fault_;
    return std::move(header_);
  }

 private:
  // Always returns false, so that a caller can return it.
  bool fail(const std::string& what) {
    fault_ = invalid_argument(name_ + ": " + what);
    return false;
  }
  bool fail_tensor(std::string_view tensor, const std::string& what) {
    fault_ = tensor_fault(name_, tensor, what);
    return false;
  }

  // Whether `bytes` more bytes exist; `what` names them in the fault.
  bool has(int64_t bytes, const char* what) {
    if (bytes <= limit_ - at_) return true;
    const std::string where = std::string(what) + " at byte " + std::to_string(at_);
    if (limit_ == bounds::kHeaderBytes) {
      return fail("expected a header of at most " + byte_count(limit_) + ", found one in which " +
                  where + " ends later");
    }
    return fail("expected " + where + ", found the end of the file; is it complete?");
  }

  template <typename T>
  bool read(T& value, const char* what) {
    if (!has(sizeof(T), what)) return false;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += int64_t{sizeof(T)};
    return true;
  }

  bool read_count(int64_t& count, int64_t most, const char* what) {
    uint64_t found = 0;
    if (!read(found, what)) return false;
    if (found > static_cast<uint64_t>(most)) {
      return fail("expected " + std::string(what) + " of at most " + std::to_string(most) +
                  ", found " + std::to_string(found));
    }
    count = static_cast<int64_t>(found);
    return true;
  }

  bool read_string(std::string_view& text, int64_t most, const char* what) {
    int64_t length = 0;
    if (!read_count(length, most, what) || !has(length, what)) return false;
    text = {reinterpret_cast<const char*>(file_.data()) + at_, static_cast<size_t>(length)};
    at_ += length;
    return true;
  }

  bool read_start(int64_t& tensors, int64_t& pairs) {
    std::array<char, 4> magic{};
    uint32_t version = 0;
    if (!read(magic, "the word GGUF") || !read(version, "the version")) return false;
    if (std::string_view(magic.data(), magic.size()) != "GGUF") {
      return fail("expected a GGUF file, which starts with 'GGUF', found " +
                  quote({magic.data(), magic.size()}));
    }
    if (version != 0 && (version & 0xFFFF) == 0) {
      return fail("expected a little-endian file, found a big-endian one");
    }
    if (version != 2 && version != 3) {
      return fail("expected version 2 or 3, found " + std::to_string(version) +
                  "; convert the model again with a current converter");
    }
    return read_count(tensors, bounds::kTensors, "a number of tensors") &&
           read_count(pairs, bounds::kPairs, "a number of keys");
  }

  bool read_pair() {
    std::string_view key;
    if (!read_string(key, bounds::kKeyBytes, "the length of a key")) return false;
    if (key.empty() || valid_utf8_prefix(key) != key.size()) {
      return fail("expected a key of UTF-8 that is not empty, found " + quote(key));
    }
    key_ = key;
    uint32_t type = 0;
    Json value;
    if (!read(type, "the type of a value") || !read_value(type, value)) return false;
    if (!header_.metadata.emplace(std::string(key), std::move(value)).second) {
      return fail("key " + quote(key) + ": expected once, found twice");
    }
    return true;
  }

  bool read_value(uint32_t number, Json& value) {
    const auto type = static_cast<ValueType>(number);
    if (number >= kValueBytes.size()) {
      return fail("key " + quote(key_) + ": expected a type from 0 to 12, found " +
                  std::to_string(number));
    }
    if (type == ValueType::kArray) return read_array(value);
    if (type != ValueType::kString) return read_scalar(type, value);
    std::string_view text;
    if (!read_string(text, bounds::kStringBytes, "the length of a string")) return false;
    if (valid_utf8_prefix(text) != text.size()) {
      return fail("key " + quote(key_) + ": expected UTF-8, found " + quote(text));
    }
    value = std::string(text);
    return true;
  }

  template <typename T>
  bool read_number(Json& value) {
    T number{};
    if (!read(number, "a number")) return false;
    value = number;
    return true;
  }

  bool read_scalar(ValueType type, Json& value) {
    switch (type) {
      case ValueType::kU8:
        return read_number<uint8_t>(value);
      case ValueType::kI8:
        return read_number<int8_t>(value);
      case ValueType::kU16:
        return read_number<uint16_t>(value);
      case ValueType::kI16:
        return read_number<int16_t>(value);
      case ValueType::kU32:
        return read_number<uint32_t>(value);
      case ValueType::kI32:
        return read_number<int32_t>(value);
      case ValueType::kF32:
        return read_number<float>(value);
      case ValueType::kU64:
        return read_number<uint64_t>(value);
      case ValueType::kI64:
        return read_number<int64_t>(value);
      case ValueType::kF64:
        return read_number<double>(value);
      default:
        return read_bool(value);
    }
  }

  bool read_bool(Json& value) {
    uint8_t found = 0;
    if (!read(found, "a bool")) return false;
    if (found > 1) {
      return fail("key " + quote(key_) + ": expected a bool of 0 or 1, found " +
                  std::to_string(found));
    }
    value = found == 1;
    return true;
  }

  bool read_array(Json& value) {
    uint32_t number = 0;
    int64_t count = 0;
    if (!read(number, "the type of an array")) return false;
    const auto type = static_cast<ValueType>(number);
    if (number >= kValueBytes.size() || type == ValueType::kArray) {
      return fail("key " + quote(key_) +
                  ": expected an array of numbers, bools or strings, found type " +
                  std::to_string(number));
    }
    if (!read_count(count, bounds::kElements, "a number of elements") ||
        !has(count * kValueBytes[number], "the elements of an array")) {
      return false;
    }
    elements_ += count;
    if (elements_ > bounds::kElements) {
      return fail("key " + quote(key_) + ": expected at most " + std::to_string(bounds::kElements) +
                  " elements in all arrays of the file, found more");
    }
    value = Json::array();
    auto& elements = value.get_ref<Json::array_t&>();
    elements.resize(static_cast<size_t>(count));
    for (Json& element : elements) {
      if (!read_element(type, element)) return false;
    }
    return true;
  }

  bool read_element(ValueType type, Json& element) {
    if (type != ValueType::kString) return read_scalar(type, element);
    std::string_view text;
    if (!read_string(text, bounds::kTokenBytes, "the length of a string in an array")) return false;
    element = std::string(text);
    return true;
  }

  bool check_whole() {
    const auto split = header_.metadata.find("split.count");
    if (split == header_.metadata.end() || *split == 0 || *split == 1) return true;
    return fail("key 'split.count': expected a model in one file, found " + describe(*split) +
                " files; join them with llama-gguf-split --merge");
  }

  bool read_alignment() {
    const auto found = header_.metadata.find("general.alignment");
    if (found == header_.metadata.end()) return true;
    const bool is_power = found->is_number_unsigned() &&
                          std::has_single_bit(found->get<uint64_t>()) &&
                          *found >= bounds::kLeastAlignment && *found <= bounds::kMostAlignment;
    if (!is_power) {
      return fail("key 'general.alignment': expected a power of two from " +
                  std::to_string(bounds::kLeastAlignment) + " to " +
                  std::to_string(bounds::kMostAlignment) + ", found " + describe(*found));
    }
    alignment_ = found->get<int64_t>();
    return true;
  }

  bool read_tensor_info() {
    std::string_view name;
    if (!read_string(name, bounds::kNameBytes, "the length of a tensor's name")) return false;
    if (name.empty() || valid_utf8_prefix(name) != name.size()) {
      return fail("expected a tensor's name of UTF-8 that is not empty, found " + quote(name));
    }
    StoredTensor tensor;
    uint32_t type = 0;
    uint64_t offset = 0;
    if (!read_shape(name, tensor.shape) || !read(type, "the type of a tensor") ||
        !read(offset, "the offset of a tensor")) {
      return false;
    }
    if (std::string error = read_type(type, tensor.type); !error.empty()) {
      return fail_tensor(name, error);
    }
    return check_size(name, offset, tensor) && add(name, std::move(tensor));
  }

  bool read_shape(std::string_view name, std::vector<int64_t>& shape) {
    uint32_t dimensions = 0;
    if (!read(dimensions, "the number of a tensor's dimensions")) return false;
    if (dimensions < 1 || dimensions > bounds::kDimensions) {
      return fail_tensor(name, "expected 1 to 4 dimensions, found " + std::to_string(dimensions));
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      uint64_t size = 0;
      if (!read(size, "a dimension")) return false;
      if (size < 1 || size > uint64_t{INT64_MAX}) {
        return fail_tensor(name,
                           "expected dimensions from 1 to 2^63 - 1, found " + std::to_string(size));
      }
      shape.insert(shape.begin(), static_cast<int64_t>(size));
    }
    return true;
  }

  // Sets begin and end, counted from the start of the data.
  bool check_size(std::string_view name, uint64_t offset, StoredTensor& tensor) {
    const StoredFormat& format = format_of(tensor.type);
    if (tensor.shape.back() % format.elements != 0) {
      return fail_tensor(name, "expected rows of a multiple of " + std::to_string(format.elements) +
                                   " elements, a block of " + format.name + ", found " +
                                   std::to_string(tensor.shape.back()));
    }
    int64_t units = tensor.shape.back() / format.elements, bytes = 0;
    bool fits = true;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
      fits = fits && !__builtin_mul_overflow(units, tensor.shape[i], &units);
    }
    fits =
        fits && !__builtin_mul_overflow(units, format.bytes, &bytes) && bytes <= std::ssize(file_);
    if (!fits) {
      return fail_tensor(name, "shape " + shape_text(tensor.shape) + " of " + format.name +
                                   " takes more than the " + std::to_string(file_.size()) +
                                   " bytes of the file; is it complete?");
    }
    if (offset != static_cast<uint64_t>(data_)) {
      return fail_tensor(name, "expected the offset " + std::to_string(data_) +
                                   ", where the tensors before it end, found " +
                                   std::to_string(offset));
    }
    tensor.begin = data_;
    tensor.end = data_ + bytes;
    data_ = padded(tensor.end, alignment_);  // grows by at most the file's size per tensor
    return true;
  }

  bool add(std::string_view name, StoredTensor tensor) {
    if (header_.tensors.emplace(name, std::move(tensor)).second) return true;
    return fail_tensor(name, "expected once, found twice");
  }

  bool place_tensors() {
    header_.data_begin = padded(at_, alignment_);
    const int64_t most = std::ssize(file_) - header_.data_begin;
    for (const auto& [name, tensor] : header_.tensors) {
      if (tensor.end <= most) continue;
      return fail_tensor(name, "expected to end within the file, whose tensors have " +
                                   std::to_string(std::max<int64_t>(most, 0)) +
                                   " bytes, found an end at byte " + std::to_string(tensor.end) +
                                   "; is it complete?");
    }
    return true;
  }

  const std::span<const std::byte> file_;
  const std::string& name_;
  const int64_t limit_;   // the header ends before it
  int64_t at_ = 0;        // bytes read
  int64_t elements_ = 0;  // of the arrays read so far
  std::string_view key_;
  int64_t alignment_ = 32;
  int64_t data_ = 0;  // where the next tensor begins
  GgufHeader header_;
  Status fault_;
};

}  // namespace

uint32_t gguf_type(StoredType type) {
  return std::ranges::find(kTensorTypes, std::optional(type), &TensorType::type)->number;
}

bool is_gguf(const std::string& path) {
  return path.size() > kGgufEnding.size() && path.ends_with(kGgufEnding);
}

Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file, const std::string& name) {
  return HeaderReader(file, name).read();
}

}  // namespace runnel
