#include "server/grpc/library_log.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <sstream>

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LibraryLog, LogsABoundedNumberOfErrors) {
  std::ostringstream out;
  const EventLog log("debug", false, out);
  Clock clock{TimePoint(std::chrono::hours(1))};
  {
    const LibraryLog library(log, clock);
    gpr_log(GPR_INFO, "chatter");
    gpr_log(GPR_ERROR, "a bad\nhandshake of %d", 7);
    for (int i = 0; i < 1000; ++i) gpr_log(GPR_ERROR, "and again");
    clock.advance(std::chrono::seconds(1));
    gpr_log(GPR_ERROR, "later");
  }
  gpr_log(GPR_ERROR, "nobody listens");
  EXPECT_THAT(out.str(), HasSubstr("warn grpc message=\"a bad\\\\x0ahandshake of 7\" dropped=0"));
  EXPECT_THAT(out.str(), Not(HasSubstr("and again")));
  EXPECT_THAT(out.str(), HasSubstr("warn grpc message=later dropped=1000"));
  EXPECT_THAT(out.str(), Not(HasSubstr("chatter")));
  EXPECT_THAT(out.str(), Not(HasSubstr("nobody listens")));
}

}  // namespace
}  // namespace runnel
