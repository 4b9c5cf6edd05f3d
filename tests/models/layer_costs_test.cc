// Tests the file of costs that decide the shape of the whole-model kernel: its contents, and the
// message for each fault.
#include "kernels/cuda/layer_costs.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

class LayerCostsTest : public testing::Test {
 protected:
  Result<LayerCosts> read(const std::string& text) const {
    write_file(path_, text);
    return read_layer_costs(path_);
  }
  void expect_fault(const std::string& text, const std::string& message) const {
    const Result<LayerCosts> costs = read(text);
    ASSERT_FALSE(costs.ok()) << text;
    EXPECT_EQ(costs.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(costs.status().message().find(path_), std::string::npos) << costs.status().message();
    EXPECT_NE(costs.status().message().find(message), std::string::npos)
        << costs.status().message();
  }

 private:
  TempDir directory_;
  std::string path_ = directory_.path() + "/costs.json";
};

TEST_F(LayerCostsTest, AnUnnamedCostKeepsItsDefault) {
  const Result<LayerCosts> none = read("{}");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, LayerCosts{});
  const Result<LayerCosts> some = read(R"({"meeting": 744, "cache_block": 28})");
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(*some, (LayerCosts{.meeting = 744, .cache_block = 28}));
}

TEST_F(LayerCostsTest, EveryCostHasAName) {
  const Result<LayerCosts> all =
      read(R"({"meeting": 1, "alone": 2, "wait": 3, "norm": 4, "product": 5, "cache_block": 6,)"
           R"( "cache": 7, "memory_block": 8, "memory": 9})");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, (LayerCosts{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(LayerCostsTest, BadFilesAreRefused) {
  expect_fault("", "");
  expect_fault("{\"meeting\": 744", "");
  expect_fault("[700]", "an object");
  expect_fault(R"({"meetings": 744})", "meetings");
  expect_fault(R"({"meeting": 744, "meeting": 745})", "meeting");
  for (const char* number :
       {"0", "-1", "1000001", "18446744073709551615", "1.5", "\"700\"", "null"})
    expect_fault(std::string(R"({"cache": )") + number + "}",
                 "cache: expected an integer from 1 to 1000000");
  expect_fault("{}" + std::string(5000, ' '), "");
}

TEST_F(LayerCostsTest, AMissingFileIsNamed) {
  const Result<LayerCosts> costs = read_layer_costs("/nonexistent/costs.json");
  ASSERT_FALSE(costs.ok());
  EXPECT_NE(costs.status().message().find("/nonexistent/costs.json"), std::string::npos);
}

}  // namespace
}  // namespace runnel
