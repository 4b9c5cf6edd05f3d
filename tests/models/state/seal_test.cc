#include "models/state/seal.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <string>

namespace runnel {
namespace {

constexpr int kAll = std::numeric_limits<int>::max();
thread_local int g_left = kAll;  // allocations that OpenSSL may still make

bool may_allocate() {
  if (g_left == kAll) return true;
  if (g_left == 0) return false;
  --g_left;
  return true;
}

void* allocate(size_t bytes, const char*, int) {
  return may_allocate() ? std::malloc(bytes) : nullptr;
}
void* reallocate(void* old, size_t bytes, const char*, int) {
  return may_allocate() ? std::realloc(old, bytes) : nullptr;
}
void release(void* old, const char*, int) { std::free(old); }

// Must run before the first allocation of OpenSSL, which later refuses the change.
const bool kReplaced = CRYPTO_set_mem_functions(allocate, reallocate, release) == 1;

// The number of failed attempts to make a seal, each of which may allocate once more than before.
int refusals(const SealKey* key) {
  for (int count = 0;; ++count) {
    g_left = count;
    try {
      const Seal seal(key);
      g_left = kAll;
      return count;
    } catch (const std::bad_alloc&) {
      g_left = kAll;
    }
  }
}

TEST(SealTest, AllocationFailuresThrow) {
  ASSERT_TRUE(kReplaced);
  const SealKey key = make_seal_key(std::string(32, 's'));
  const Seal digest(nullptr);  // the library now has its one-time allocations
  EXPECT_GT(refusals(nullptr), 0);
  EXPECT_GT(refusals(&key), 0);
}

}  // namespace
}  // namespace runnel
