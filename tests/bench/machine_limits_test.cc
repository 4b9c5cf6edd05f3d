#include "bench/machine_limits.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <limits>

namespace {

constexpr int kAll = std::numeric_limits<int>::max();
std::atomic<int> threads_left{kAll};  // that can still be started

}  // namespace

// Replaces the function of the C library, which std::thread calls.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left != kAll && threads_left-- <= 0) return EAGAIN;
  return real(thread, attributes, start, argument);
}

namespace runnel {
namespace {

TEST(MachineLimits, AThreadThatCannotBeStartedIsAnError) {
  for (const int started : {0, 1, 2}) {
    threads_left = started;
    const Result<MachineLimits> limits = measure_limits(4);
    threads_left = kAll;
    EXPECT_EQ(limits.status().code(), Code::kResourceExhausted) << started;
    EXPECT_THAT(limits.status().message(), testing::HasSubstr("cannot start 4 threads"));
  }
}

}  // namespace
}  // namespace runnel
