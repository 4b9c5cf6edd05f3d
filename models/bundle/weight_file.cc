#include "models/bundle/weight_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "models/bundle/gguf.h"

namespace runnel {
namespace {

constexpr int64_t kLengthBytes = 8;  // of the header's length, in safetensors

}  // namespace

Result<WeightFile> WeightFile::open(const std::string& path) {
  return is_gguf(path) ? open_gguf(path) : open_safetensors(path);
}

Result<WeightFile> WeightFile::open_gguf(const std::string& path) {
  Result<MappedFile> mapped = MappedFile::open(path, kLeastGgufBytes, "the start of a GGUF file");
  if (!mapped.ok()) return mapped.status();
  Result<GgufHeader> header = parse_gguf_header(mapped->bytes(), path);
  if (!header.ok()) return header.status();
  WeightFile file;
  file.file_ = std::move(*mapped);
  const std::span<const std::byte> bytes = file.file_.bytes();
  file.data_ = bytes.subspan(std::min(static_cast<size_t>(header->data_begin), bytes.size()));
  file.tensors_ = std::move(header->tensors);
  file.metadata_ = std::move(header->metadata);
  return file;
}

Result<WeightFile> WeightFile::open_safetensors(const std::string& path) {
  Result<MappedFile> mapped = MappedFile::open(path, kLengthBytes, "the header's length");
  if (!mapped.ok()) return mapped.status();
  WeightFile file;
  file.file_ = std::move(*mapped);
  const std::span<const std::byte> bytes = file.file_.bytes();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes, std::ssize(bytes) - kLengthBytes);
  if (header_bytes > static_cast<uint64_t>(most)) {
    return invalid_argument(path + ": the header's length is " + std::to_string(header_bytes) +
                            " bytes; expected at most " + std::to_string(most) + " in a file of " +
                            std::to_string(bytes.size()) +
                            "; is it a safetensors file, and complete?");
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                                static_cast<size_t>(header_bytes));
  file.data_ = bytes.subspan(kLengthBytes + header.size());
  Result<StoredTensors> tensors = parse_safetensors_header(header, std::ssize(file.data_), path);
  if (!tensors.ok()) return tensors.status();
  file.tensors_ = std::move(*tensors);
  return file;
}

Result<Tensor> WeightFile::find(std::string_view name, std::span<const int64_t> shape) const {
  return find_tensor(tensors_, data_, name, shape, path());
}

}  // namespace runnel
