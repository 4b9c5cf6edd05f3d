#include "tests/server/allocation_limit.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
std::atomic<size_t> most{kUnlimited};
thread_local bool is_exempt = false;

}  // namespace

void* operator new(size_t bytes) {
  if (bytes <= most.load() || is_exempt) {
    if (void* data = std::malloc(bytes == 0 ? 1 : bytes); data != nullptr) return data;
  }
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (bytes > most.load() && !is_exempt) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace runnel {

AllocationLimit::AllocationLimit(size_t bytes) {
  is_exempt = true;
  most.store(bytes);
}
AllocationLimit::~AllocationLimit() {
  most.store(kUnlimited);
  is_exempt = false;
}

}  // namespace runnel
