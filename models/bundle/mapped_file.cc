#include "models/bundle/mapped_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"

namespace runnel {
namespace {

std::string not_finite(float value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "infinity" : "-infinity";
}

// The index of element number `flat` in a tensor of this shape.
std::vector<int64_t> index_of(int64_t flat, std::span<const int64_t> shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, int64_t least, const char* what) {
  Result<RegularFile> opened = RegularFile::open(path);
  if (!opened.ok()) return opened.status();
  const int64_t bytes = opened->bytes();
  if (bytes < least) {
    return invalid_argument(path + ": " + std::to_string(bytes) + " bytes; expected at least " +
                            std::to_string(least) + ", " + what);
  }
  // Nobody writes to the private mapping, so it shares its pages with the file cache.
  void* const map =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE, opened->descriptor(), 0);
  if (map == MAP_FAILED) {
    return Status(Code::kResourceExhausted,
                  path + ": cannot map " + std::to_string(bytes) +
                      " bytes: " + std::generic_category().message(errno));
  }
  MappedFile file;
  file.path_ = path;
  file.file_ = std::move(*opened);
  file.bytes_ = {static_cast<const std::byte*>(map), static_cast<size_t>(bytes)};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

// Also releases the pages around the bytes, because the kernel maps those together with the bytes.
// A later read maps them again.
void MappedFile::release(std::span<const std::byte> bytes) const {
  constexpr uintptr_t kAround = 64 << 10;  // bytes that the kernel maps for one read
  const auto whole = reinterpret_cast<uintptr_t>(bytes_.data());
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  if (bytes.empty() || first < whole || first + bytes.size() > whole + bytes_.size()) return;
  const uintptr_t begin = std::max(whole, first / kAround * kAround);
  const uintptr_t end = (first + bytes.size() + kAround - 1) / kAround * kAround;
  ::madvise(reinterpret_cast<void*>(begin), std::min(end, whole + bytes_.size()) - begin,
            MADV_DONTNEED);
}

Status check_finite(const Tensor& tensor, std::string_view name, const std::string& file) {
  const int64_t place = first_not_finite(tensor);
  if (place == tensor.elements()) return {};
  float value = 0.0F;
  widen(tensor, place, {&value, 1});
  return tensor_fault(file, name,
                      "element " + shape_text(index_of(place, tensor.shape)) + " is " +
                          not_finite(value) + "; expected a finite number");
}

Status tensor_fault(const std::string& file, std::string_view tensor, const std::string& what) {
  return invalid_argument(file + ": tensor " + quote(tensor) + ": " + what);
}

}  // namespace runnel
