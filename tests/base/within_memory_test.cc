#include "base/within_memory.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace runnel {
namespace {

TEST(WithinMemory, AnExceptionBecomesTheStatusOfTheCall) {
  EXPECT_TRUE(within_memory([] { return Status(); }).ok());
  const Status full = within_memory([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  const Status failed = within_memory([]() -> Status { throw std::out_of_range("at 4"); });
  EXPECT_EQ(failed.code(), Code::kInternal);
  EXPECT_EQ(failed.message(), "the server failed at this call, please report it: at 4");
}

}  // namespace
}  // namespace runnel
