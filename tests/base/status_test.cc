#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace runnel {
namespace {

TEST(Status, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "OK");
}

TEST(Status, SaysCodeAndMessage) {
  const Status status = not_found("no session 'a'");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), "NOT_FOUND: no session 'a'");
  EXPECT_FALSE(status.retry_after().has_value());
}

TEST(Status, CarriesARetryHint) {
  Status status(Code::kResourceExhausted, "full");
  status.with_retry_after(std::chrono::milliseconds(250));
  EXPECT_EQ(status.retry_after(), std::chrono::milliseconds(250));
}

TEST(Status, CarriesTheReasonOfARefusal) {
  Status status(Code::kResourceExhausted, "full");
  EXPECT_EQ(status.reason(), "");
  status.with_reason("mailbox");
  EXPECT_EQ(Status(status).reason(), "mailbox");
}

TEST(Status, EveryCodeHasItsCanonicalName) {
  EXPECT_STREQ(code_name(Code::kOk), "OK");
  EXPECT_STREQ(code_name(Code::kInvalidArgument), "INVALID_ARGUMENT");
  EXPECT_STREQ(code_name(Code::kOutOfRange), "OUT_OF_RANGE");
  EXPECT_STREQ(code_name(Code::kDataLoss), "DATA_LOSS");
  EXPECT_STREQ(code_name(Code::kPermissionDenied), "PERMISSION_DENIED");
  EXPECT_STREQ(code_name(Code::kUnauthenticated), "UNAUTHENTICATED");
  EXPECT_STREQ(code_name(static_cast<Code>(99)), "UNKNOWN");
}

TEST(Result, HoldsAValueOrAReason) {
  const Result<int> good = 3;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  EXPECT_TRUE(good.status().ok());
  const Result<int> bad = invalid_argument("x");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
}

TEST(Result, MovesAValueThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace runnel
