// GGUF files for tests: any header, well-formed or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// A tensor to write. `shape` is in the order of the file: the fastest dimension comes first.
struct GgufTensor {
  std::string name;
  uint32_t type = 0;
  std::vector<uint64_t> shape;
  std::string data;
};

class GgufWriter {
 public:
  // A key and a value of the format's type `type`. The value is given as bytes.
  GgufWriter& pair(std::string_view key, uint32_t type, std::string_view value);
  GgufWriter& text(std::string_view key, std::string_view value);
  GgufWriter& number(std::string_view key, uint32_t value);
  GgufWriter& number(std::string_view key, float value);
  GgufWriter& boolean(std::string_view key, bool value);
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& numbers(std::string_view key, const std::vector<int32_t>& values);
  GgufWriter& tensor(GgufTensor tensor);

  // The whole file, with an alignment of 32.
  std::string file(uint32_t version = 3) const;

 private:
  std::vector<std::string> pairs_;
  std::vector<GgufTensor> tensors_;
};

// The bytes of a number, little-endian, or of a string after its length.
template <typename T>
std::string gguf_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
std::string gguf_string(std::string_view text);

}  // namespace runnel
