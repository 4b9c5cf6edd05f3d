#include "models/rwkv7/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "models/bundle/bundle.h"
#include "models/bundle/config.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Shape = std::vector<int64_t>;

Rwkv7Spec& rwkv7_of(Spec& spec) { return std::get<Rwkv7Spec>(spec.model); }

TEST(Rwkv7, ListsOfficialNames) {
  auto shapes = shapes_of(small_rwkv7_spec());
  EXPECT_EQ(shapes.size(), 1U + 3 * 33 + 2 + 2 + 1);
  EXPECT_EQ(shapes["emb.weight"], (Shape{13, 24}));
  EXPECT_EQ(shapes["blocks.0.ln0.bias"], (Shape{24}));
  EXPECT_EQ(shapes["blocks.1.att.w1"], (Shape{24, 3}));
  EXPECT_EQ(shapes["blocks.1.att.v2"], (Shape{4, 10}));
  EXPECT_EQ(shapes["blocks.1.att.r_k"], (Shape{2, 12}));
  EXPECT_EQ(shapes["blocks.2.att.output.weight"], (Shape{24, 10}));
  EXPECT_EQ(shapes["blocks.2.att.ln_x.weight"], (Shape{10}));
  EXPECT_EQ(shapes["blocks.2.ffn.key.weight"], (Shape{33, 24}));
  EXPECT_EQ(shapes["head.weight"], (Shape{13, 24}));
}

TEST(Rwkv7, ListsTheNamesOfFla) {
  Spec spec = small_rwkv7_spec();
  rwkv7_of(spec).names = Rwkv7Names::kFla;
  rwkv7_of(spec).tied = true;
  auto shapes = shapes_of(spec);
  EXPECT_EQ(shapes.size(), 1U + 3 * 33 + 2 + 2);
  for (const char* const name :
       {"model.embeddings.weight", "model.norm.bias", "model.layers.0.pre_norm.weight",
        "model.layers.2.attn_norm.weight", "model.layers.2.ffn_norm.bias",
        "model.layers.1.attn.x_g", "model.layers.1.attn.k_a", "model.layers.1.attn.o_proj.weight",
        "model.layers.1.attn.g_norm.bias", "model.layers.1.attn.v_lora.lora.2.bias",
        "model.layers.1.ffn.x_k", "model.layers.1.ffn.value.weight"}) {
    EXPECT_TRUE(shapes.contains(name)) << name;
  }
  EXPECT_EQ(shapes["model.layers.1.attn.w_lora.lora.0.weight"], (Shape{3, 24}));
  EXPECT_EQ(shapes["model.layers.1.attn.g_lora.lora.2.weight"], (Shape{10, 7}));
}

TEST(Rwkv7, ListsOptionsOfFla) {
  Spec spec = small_rwkv7_spec();
  rwkv7_of(spec).names = Rwkv7Names::kFlaX;
  rwkv7_of(spec).norm_bias = rwkv7_of(spec).input_norm = false;
  auto shapes = shapes_of(spec);
  EXPECT_EQ(shapes["model.layers.0.attn.x_x"], (Shape{6, 24}));
  for (const char* const name : {"model.layers.0.attn.x_r", "model.layers.0.pre_norm.weight",
                                 "model.layers.0.attn_norm.bias", "model.norm.bias"}) {
    EXPECT_FALSE(shapes.contains(name)) << name;
  }
  EXPECT_TRUE(shapes.contains("lm_head.weight"));
}

// Official files have unused v0, v1 and v2 in block 0, and vectors with or without dimensions of 1.
TEST(Rwkv7, LoadsFilesWithUnusedTensors) {
  const Spec spec = small_rwkv7_spec();
  const TensorMap tensors = random_tensors(spec, 1);
  const TempDir directory;
  write_bundle(directory.path(), spec, tensors);
  auto raw = raw_tensors(spec, tensors, StoredType::kF32);
  raw["blocks.0.att.v1"] = {"F32", {5}, std::string(20, '\0')};
  raw.erase("blocks.0.att.v2");
  raw["blocks.1.att.x_r"].shape = {1, 1, 24};
  raw["blocks.1.att.w0"].shape = {1, 24};
  write_file(directory.path() + "/model.safetensors", safetensors_file(raw));
  const Result<Bundle> bundle = load_bundle(directory.path());
  ASSERT_TRUE(bundle.ok()) << bundle.status().message();
  EXPECT_FALSE(bundle->tensors.contains("blocks.0.att.v0"));
  EXPECT_EQ(widened(bundle->tensors.at("blocks.1.att.x_r")), tensors.at("blocks.1.att.x_r"));

  for (const Shape& shape : {Shape{24, 1, 1}, Shape{2, 12}, Shape{1, 12, 2}}) {
    raw["blocks.1.att.x_r"].shape = shape;
    write_file(directory.path() + "/model.safetensors", safetensors_file(raw));
    EXPECT_THAT(load_bundle(directory.path()).status().message(),
                HasSubstr("tensor 'blocks.1.att.x_r': expected shape [24], found ["));
  }
}

TEST(Rwkv7, CountsStateAndParameters) {
  const Spec spec = small_rwkv7_spec();
  EXPECT_EQ(spec.state_bytes(), 3 * (2 * 12 * 5 + 2 * 24) * 4);
  Spec published = spec;  // the 0.1B model of 12 layers of width 768
  rwkv7_of(published) = {.layers = 12,
                         .width = 768,
                         .heads = 12,
                         .value_width = 768,
                         .ffn = 3072,
                         .ranks = {64, 64, 32, 128},
                         .table_rows = 65536};
  EXPECT_EQ(published.state_bytes(), 2'433'024);
  EXPECT_EQ(published.parameters(), 191'034'624);
}

TEST(Rwkv7, RefusesByName) {
  const struct {
    const char* change;  // merged into "model"
    const char* want;
  } kFaults[] = {
      {R"({"names": "x"})",
       "model.names: expected 'official' or 'fla' or 'fla_x' or 'gguf', found 'x'"},
      {R"({"heads": 5})", "model.width: expected a multiple of 5 (model.heads), found 24"},
      {R"({"value_width": 9})", "model.value_width: expected a multiple of 2 (model.heads), found"},
      {R"({"table_rows": 10})", "model.table_rows: expected an integer from 11 to 1048576"},
      {R"({"ranks": {"decay": 1}})", "model.ranks.rate: expected an integer from 1"},
      {R"({"key_eps": 0})", "model.key_eps: expected a number above 0"},
      {R"({"attn": null})", "model: expected one of the keys family, names, layers"},
      {R"({"family": "rwkv9"})", "'gated_linear', 'rwkv6', 'mamba1' or 'hybrid', found 'rwkv9'"},
      {R"({"family": 7})", "model.family: expected"},
  };
  for (const auto& [change, want] : kFaults) {
    json tree = json::parse(spec_to_json(small_rwkv7_spec()));
    tree["model"].update(json::parse(change));
    const Result<Spec> spec = parse_spec(tree.dump(), "config.json");
    ASSERT_FALSE(spec.ok()) << change;
    EXPECT_THAT(spec.status().message(), HasSubstr(want));
  }
}

}  // namespace
}  // namespace runnel
