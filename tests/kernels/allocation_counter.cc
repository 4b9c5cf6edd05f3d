#include "tests/kernels/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(size_t bytes) {
  allocations.fetch_add(1);
  if (void* data = std::malloc(bytes == 0 ? 1 : bytes); data != nullptr) return data;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
// Replaces the C library's function. Backends call it for their memory, and so does the operator
// new of types with an alignment.
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  allocations.fetch_add(1);
  void* data = nullptr;
  return posix_memalign(&data, alignment, bytes) == 0 ? data : nullptr;
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace runnel {

int64_t allocation_count() { return allocations.load(); }

}  // namespace runnel
