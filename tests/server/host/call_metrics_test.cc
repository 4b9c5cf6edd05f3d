#include "server/host/call_metrics.h"

#include <gtest/gtest.h>

namespace runnel {
namespace {

constexpr auto kOk = static_cast<size_t>(Code::kOk);
constexpr auto kFull = static_cast<size_t>(Code::kResourceExhausted);

TEST(CallMetrics, CountsByMethodCodeAndReason) {
  CallMetrics metrics;
  metrics.count("Generate", {});
  metrics.count("Score", Status(Code::kResourceExhausted, "").with_reason("sessions"));
  EXPECT_EQ(metrics.ended[0][kOk].value(), 1);
  EXPECT_EQ(metrics.ended[1][kFull].value(), 1);
  EXPECT_EQ(metrics.refused[2].value(), 1);
}

TEST(CallMetrics, UnknownNamesCountAsOther) {
  CallMetrics metrics;
  metrics.count("Format", Status(Code::kResourceExhausted, "").with_reason("whim"));
  EXPECT_EQ(metrics.ended.back()[kFull].value(), 1);
  EXPECT_EQ(metrics.refused.back().value(), 1);
}

TEST(CallMetrics, AddsOtherMetrics) {
  CallMetrics one;
  CallMetrics other;
  one.count("Generate", {});
  other.count("Generate", {});
  other.count("Generate", Status(Code::kUnavailable, "").with_reason("draining"));
  other.first_value.observe(std::chrono::seconds(1));
  one.add(other);
  EXPECT_EQ(one.ended[0][kOk].value(), 2);
  EXPECT_EQ(one.refused[10].value(), 1);
  EXPECT_EQ(one.first_value.count(), 1);
}

}  // namespace
}  // namespace runnel
