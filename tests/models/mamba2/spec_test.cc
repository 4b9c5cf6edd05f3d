#include "models/mamba2/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "models/bundle/config.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Shape = std::vector<int64_t>;

Mamba2Spec& mamba2_of(Spec& spec) { return std::get<Mamba2Spec>(spec.model); }

TEST(Mamba2, ListsTensors) {
  auto shapes = shapes_of(small_mamba2_spec());
  EXPECT_EQ(shapes.size(), 1U + 2 * 11 + 1);
  EXPECT_EQ(shapes["backbone.embeddings.weight"], (Shape{14, 20}));
  EXPECT_EQ(shapes["backbone.layers.0.norm.weight"], (Shape{20}));
  const std::string mixer = "backbone.layers.1.mixer.";
  EXPECT_EQ(shapes[mixer + "in_proj.weight"], (Shape{30 + 58 + 6, 20}));
  EXPECT_EQ(shapes[mixer + "in_proj.bias"], (Shape{94}));
  EXPECT_EQ(shapes[mixer + "conv1d.weight"], (Shape{58, 1, 4}));
  EXPECT_EQ(shapes[mixer + "conv1d.bias"], (Shape{58}));
  for (const char* const name : {"A_log", "D", "dt_bias"}) {
    EXPECT_EQ(shapes[mixer + name], (Shape{6}));
  }
  EXPECT_EQ(shapes[mixer + "norm.weight"], (Shape{30}));
  EXPECT_EQ(shapes[mixer + "out_proj.weight"], (Shape{20, 30}));
  EXPECT_EQ(shapes[mixer + "out_proj.bias"], (Shape{20}));
  EXPECT_EQ(shapes["backbone.norm_f.weight"], (Shape{20}));
}

TEST(Mamba2, ListsOptions) {
  Spec spec = small_mamba2_spec();
  mamba2_of(spec).names = Mamba2Names::kStateSpaces;
  mamba2_of(spec).bias = mamba2_of(spec).convolution_bias = mamba2_of(spec).tied = false;
  auto shapes = shapes_of(spec);
  EXPECT_EQ(shapes.size(), 2U + 2 * 8 + 1);
  EXPECT_EQ(shapes["backbone.embedding.weight"], (Shape{14, 20}));
  EXPECT_EQ(shapes["lm_head.weight"], (Shape{14, 20}));
}

TEST(Mamba2, CountsStateAndParameters) {
  EXPECT_EQ(small_mamba2_spec().state_bytes(), 2 * (6 * 7 * 5 + 3 * 58) * 4);
  Spec published = small_mamba2_spec();  // state-spaces/mamba2-130m
  mamba2_of(published) = {.layers = 24,
                          .width = 768,
                          .heads = 24,
                          .head_size = 64,
                          .state_size = 128,
                          .table_rows = 50288};
  EXPECT_EQ(published.state_bytes(), 19'390'464);
  EXPECT_EQ(published.parameters(), 128'989'632);
}

TEST(Mamba2, RefusesByName) {
  const struct {
    const char* change;  // merged into "model"
    const char* want;
  } kFaults[] = {
      {R"({"groups": 4})", "model.heads: expected a multiple of 4 (model.groups), found 6"},
      {R"({"head_size": 4000})",
       "model.head_size: expected model.heads times this to be at most 16384, found 6 * 4000"},
      {R"({"state_size": 16384})", "model.state_size: expected model.groups times this"},
      {R"({"taps": 1})", "model.taps: expected an integer from 2 to 16, found 1"},
      {R"({"dt_least": 0.8})", "model.dt_least: expected at most 0.75 (model.dt_most), found 0.8"},
      {R"({"dt_least": -1})", "model.dt_least: expected a number above 0"},
      {R"({"expand": 2})", "model: expected one of the keys family, names, layers"},
  };
  for (const auto& [change, want] : kFaults) {
    json tree = json::parse(spec_to_json(small_mamba2_spec()));
    tree["model"].update(json::parse(change));
    const Result<Spec> spec = parse_spec(tree.dump(), "config.json");
    ASSERT_FALSE(spec.ok()) << change;
    EXPECT_THAT(spec.status().message(), HasSubstr(want));
  }
}

}  // namespace
}  // namespace runnel
