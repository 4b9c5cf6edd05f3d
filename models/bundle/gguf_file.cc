#include "models/bundle/gguf_file.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

constexpr int kGgufPasses = 3;

}  // namespace

bool is_gguf(const std::string& path) {
  return path.size() > kGgufEnding.size() && path.ends_with(kGgufEnding);
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::string& path,
                                                       LoadProgress progress) {
  Result<MappedFile> mapped = MappedFile::open(path, kLeastGgufBytes, "the start of a GGUF file");
  if (!mapped.ok()) return mapped.status();
  Result<GgufHeader> header = parse_gguf_header(mapped->bytes(), path);
  if (!header.ok()) return header.status();
  const std::shared_ptr<GgufFile> file(new GgufFile);
  file->file_ = std::move(*mapped);
  file->header_ = std::move(*header);
  file->progress_ = std::move(progress);
  return std::shared_ptr<const GgufFile>(file);
}

Result<Tensor> GgufFile::read(std::string_view name, std::span<const int64_t> shape) const {
  const auto data = file_.bytes().subspan(
      std::min(static_cast<size_t>(header_.data_begin), file_.bytes().size()));
  Result<Tensor> tensor = read_tensor(header_.tensors, data, name, shape, path());
  if (!tensor.ok()) return tensor;
  MappedFile::release(tensor->bytes);
  count(std::ssize(tensor->bytes));
  return tensor;
}

void GgufFile::release(std::span<const std::byte> bytes) const {
  MappedFile::release(bytes);
  count(std::ssize(bytes));
}

std::string GgufFile::digest() const {
  return file_.digest([this](int64_t bytes) { count(bytes); });
}

void GgufFile::count(int64_t bytes) const {
  const int64_t all = kGgufPasses * std::ssize(file_.bytes());
  done_ = std::min(done_ + bytes, all);
  if (progress_) progress_(done_, all);
}

}  // namespace runnel
