#include "tests/models/bundle/gguf_writer.h"

#include <utility>

namespace runnel {
namespace {

constexpr size_t kAlignment = 32;

void pad(std::string& bytes) { bytes.resize((bytes.size() + kAlignment - 1) & -kAlignment); }

}  // namespace

std::string gguf_string(std::string_view text) {
  return gguf_bytes(uint64_t{text.size()}) + std::string(text);
}

GgufWriter& GgufWriter::pair(std::string_view key, uint32_t type, std::string_view value) {
  pairs_.push_back(gguf_string(key) + gguf_bytes(type) + std::string(value));
  return *this;
}

GgufWriter& GgufWriter::text(std::string_view key, std::string_view value) {
  return pair(key, 8, gguf_string(value));
}

GgufWriter& GgufWriter::number(std::string_view key, uint32_t value) {
  return pair(key, 4, gguf_bytes(value));
}

GgufWriter& GgufWriter::number(std::string_view key, float value) {
  return pair(key, 6, gguf_bytes(value));
}

GgufWriter& GgufWriter::boolean(std::string_view key, bool value) {
  return pair(key, 7, gguf_bytes(uint8_t{value}));
}

GgufWriter& GgufWriter::texts(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = gguf_bytes(uint32_t{8}) + gguf_bytes(uint64_t{values.size()});
  for (const std::string& value : values) bytes += gguf_string(value);
  return pair(key, 9, bytes);
}

GgufWriter& GgufWriter::numbers(std::string_view key, const std::vector<int32_t>& values) {
  std::string bytes = gguf_bytes(uint32_t{5}) + gguf_bytes(uint64_t{values.size()});
  for (const int32_t value : values) bytes += gguf_bytes(value);
  return pair(key, 9, bytes);
}

GgufWriter& GgufWriter::tensor(GgufTensor tensor) {
  tensors_.push_back(std::move(tensor));
  return *this;
}

std::string GgufWriter::file(uint32_t version) const {
  std::string header = "GGUF" + gguf_bytes(version) + gguf_bytes(uint64_t{tensors_.size()}) +
                       gguf_bytes(uint64_t{pairs_.size()});
  std::string data;
  for (const std::string& pair : pairs_) header += pair;
  for (const GgufTensor& tensor : tensors_) {
    header += gguf_string(tensor.name) + gguf_bytes(static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t size : tensor.shape) header += gguf_bytes(size);
    header += gguf_bytes(tensor.type) + gguf_bytes(uint64_t{data.size()});
    data += tensor.data;
    pad(data);
  }
  pad(header);
  return header + data;
}

}  // namespace runnel
