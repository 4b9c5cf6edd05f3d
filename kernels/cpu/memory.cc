#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace runnel::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
// MADV_POPULATE_WRITE, of Linux 5.14 and later.
constexpr int kPopulateWrite = 23;
// Address space that an arena reserves at once. The system provides memory only for the used part.
constexpr int64_t kPiece = int64_t{64} << 20;

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// Maps zeroed pages on a huge-page boundary. The system provides them when they are first touched.
Buffer map_pages(int64_t bytes) {
  const int64_t rounded = rounded_up(bytes, kHugePage);
  const auto size = static_cast<size_t>(rounded + kHugePage);
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  const auto before = static_cast<size_t>(-reinterpret_cast<uintptr_t>(mapped) % kHugePage);
  std::byte* data = static_cast<std::byte*>(mapped) + before;
  if (before > 0) munmap(mapped, before);
  munmap(data + rounded, static_cast<size_t>(kHugePage) - before);
  madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  return {data, bytes, [](std::byte* held, int64_t held_bytes) {
            munmap(held, static_cast<size_t>(rounded_up(held_bytes, kHugePage)));
          }};
}

}  // namespace

Buffer zeroed_memory(int64_t bytes) {
  if (bytes > std::numeric_limits<int64_t>::max() - 2 * kHugePage) throw std::bad_alloc();
  if (bytes >= 2 * kHugePage) {
    Buffer buffer = map_pages(bytes);
    // New pages are zeros, so it is enough that the system provides them.
    if (madvise(buffer.data(), static_cast<size_t>(bytes), kPopulateWrite) != 0) {
      std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
    }
    return buffer;
  }
  const auto rounded = static_cast<size_t>(std::max(kAlignment, rounded_up(bytes, kAlignment)));
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, rounded);
  return {static_cast<std::byte*>(data), bytes, [](std::byte* held, int64_t) { std::free(held); }};
}

Buffer Arena::place(int64_t bytes) {
  const int64_t rounded = rounded_up(bytes, kAlignment);
  if (pieces_.empty() || used_ + rounded > pieces_.back().bytes()) {
    pieces_.push_back(map_pages(std::max(rounded, kPiece)));
    used_ = 0;
  }
  std::byte* data = pieces_.back().data() + used_;
  used_ += rounded;
  return {data, bytes, [](std::byte*, int64_t) {}};
}

}  // namespace runnel::cpu
