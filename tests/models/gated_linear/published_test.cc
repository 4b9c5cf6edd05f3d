// Keys that are refused in published files of the gated linear family, RWKV-5.2, RWKV-6 and
// Mamba-1. The message names the file, the key and the value that was found.
#include "models/bundle/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/bundle/config.h"
#include "models/spec.h"
#include "tests/models/bundle/published_cases.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr KeyCase kCases[] = {
    {"gla_plain", "attn", R"({"layers":[1]})",
     "null, as attention in some of the layers is not implemented, found attention in layer 1"},
    {"gated_deltanet", "attn", R"({"layers":[1,3],"num_heads":4})",
     "found attention in layers 1 and 3"},
    {"kda", "attn", R"({"layers":[1,"x"]})", R"(found {"layers":[1,"x"]})"},
    {"hgrn2", "attn", "true", "found true"},
    {"gla_plain", "attnres_block_size", "8", "found 8"},
    {"gla_plain", "hidden_act", "\"gelu\"",
     "'swish' or 'silu', all that is implemented, found 'gelu'"},
    {"gla_plain", "elementwise_affine", "false", "true, all that is implemented, found false"},
    {"gla_plain", "use_gk", "false", "true, all that is implemented, found false"},
    {"gla_plain", "use_gv", "true", "false, all that is implemented, found true"},
    {"gla_plain", "clamp_min", "0", "a number below 0, found 0"},
    {"gla_plain", "clamp_min", "1.5", "found 1.5"},
    {"gla_plain", "feature_map", "\"taylor\"", "found 'taylor'"},
    {"gla_plain", "num_heads", "5", "expand_k"},
    {"gla_plain", "num_kv_heads", "3", "found 4 and 3"},
    {"gla_plain", "vocab_size", "1000", "found 1000"},
    {"gla_plain", "norm_eps", "0", "found 0"},
    {"retnet", "expand_k", "0.5", "an even number of key channels"},
    {"delta_net", "qk_norm", "\"max\"", "'l2' or 'sum', all that is implemented, found 'max'"},
    {"delta_net", "qk_activation", "\"gelu\"", "found 'gelu'"},
    {"delta_net", "use_output_norm", "false", "found false"},
    {"delta_net", "conv_size", "1", "found 1"},
    {"delta_net", "conv_size", "17", "found 17"},
    {"gated_deltanet", "num_v_heads", "3", "found 3 and 2"},
    {"gated_deltanet", "expand_v", "0.01", "expand_v"},
    {"kda", "safe_gate", "true", "false, all that is implemented, found true"},
    {"kda", "lower_bound", "-5.0",
     "null, as a lower bound of the decay is not implemented, found -5.0"},
    {"hgrn2", "use_lower_bound", "false", "found false"},
    {"hgrn2", "expand_ratio", "5", "heads whose keys are together as wide as the model"},
    {"mamba1", "hidden_act", "\"relu\"", "found 'relu'"},
    {"mamba1", "conv_kernel", "17", "found 17"},
    {"falcon_mamba", "mixer_rms_eps", "0", "found 0"},
    {"mamba1_state_spaces", "attn_layer_idx", "[1]", "found attention in layer 1"},
    {"mamba1_state_spaces", "rms_norm", "false", "rms_norm: expected true"},
    {"mamba1_state_spaces", "d_intermediate", "64", "d_intermediate: expected an integer"},
    {"mamba1_state_spaces", "d_model", "null", "d_model: expected an integer"},
    {"mamba1_state_spaces", "ssm_cfg", R"({"d_conv":17})",
     "ssm_cfg.d_conv: expected an integer from 2 to 16, found 17"},
    {"mamba1_state_spaces", "ssm_cfg", R"({"layer":"Mamba3"})",
     "ssm_cfg.layer: expected 'Mamba1' or 'Mamba2', the layers that are implemented, found "
     "'Mamba3'"},
};

TEST(GatedLinearPublished, UnsupportedOptionsAreRefusedByTheirKey) { expect_refused(kCases); }

TEST(GatedLinearPublished, Rwkv51IsRefusedByTheTensorThatItLacks) {
  PublishedFiles published = read_published("rwkv5");
  EXPECT_EQ(published.fault(), "");
  published.tensors.erase("blocks.0.att.gate.weight");
  EXPECT_THAT(published.fault(), HasSubstr("'blocks.0.att.gate.weight' in model.safetensors"));
  published = read_published("rwkv6");
  published.tensors.erase("emb.weight");
  EXPECT_THAT(published.fault(), HasSubstr("'emb.weight' in model.safetensors"));
}

TEST(GatedLinearPublished, TheWidthOfTheFeedForwardPartFollowsFromItsRatio) {
  PublishedFiles published = read_published("gla_plain");
  published.config["intermediate_size"] = nullptr;
  published.config["hidden_size"] = 1024;
  published.config["expand_k"] = 0.5;
  const auto spec = published.spec();
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(std::get<GatedLinearSpec>(spec->model).ffn, 2816);
}

TEST(GatedLinearPublished, BothKeysOfMamba1sEpsAreRead) {
  for (const char* const key : {"layer_norm_epsilon", "norm_eps"}) {
    PublishedFiles published = read_published("mamba1");
    for (const char* const other : {"layer_norm_epsilon", "norm_eps"}) {
      published.config.erase(other);
    }
    published.config[key] = 1e-3;
    EXPECT_EQ(std::get<Mamba1Spec>(published.spec()->model).norm_eps, 1e-3F) << key;
  }
}

TEST(GatedLinearPublished, KeysOfStateSpacesMamba1AreRead) {
  PublishedFiles published = read_published("mamba1_state_spaces");
  published.config["ssm_cfg"] = {{"layer", "Mamba1"}, {"d_state", 8}, {"d_conv", 3},
                                 {"expand", 3},       {"dt_rank", 5}, {"bias", true},
                                 {"conv_bias", false}};
  Result<Spec> spec = published.spec();
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto& sizes = std::get<Mamba1Spec>(spec->model);
  EXPECT_EQ(sizes.inner, 72);
  EXPECT_EQ(sizes.state_size, 8);
  EXPECT_EQ(sizes.taps, 3);
  EXPECT_EQ(sizes.rank, 5);
  EXPECT_TRUE(sizes.bias && !sizes.convolution_bias && sizes.tied && sizes.state_spaces_names);
  EXPECT_EQ(sizes.table_rows, 40);
  spec->name = "published";
  const Result<Spec> own = parse_spec(spec_to_json(*spec), "config.json");
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_EQ(spec_to_json(*own), spec_to_json(*spec));
}

// Hugging Face's copies of these models have the keys of state-spaces in addition to their own.
TEST(GatedLinearPublished, AModelTypeGoesBeforeTheKeysOfStateSpaces) {
  PublishedFiles published = read_published("mamba1");
  const Result<Spec> before = published.spec();
  published.config["ssm_cfg"] = Json::object();
  published.config["d_model"] = 7;
  const Result<Spec> spec = published.spec();
  ASSERT_TRUE(before.ok() && spec.ok()) << spec.status().message();
  EXPECT_EQ(spec_to_json(*spec), spec_to_json(*before));
}

TEST(GatedLinearPublished, StatesOfPublishedModelsHaveTheirSizes) {
  GatedLinearSpec gla;
  gla.layers = 24;
  gla.width = 1024;
  gla.heads = gla.key_heads = 4;
  gla.dk = 128;
  gla.dv = 256;
  Spec spec;
  spec.model = gla;
  EXPECT_EQ(spec.state_bytes(), 12582912);
  GatedLinearSpec kda;
  kda.mixer = GatedMixer::kKda;
  kda.layers = 24;
  kda.width = 2048;
  kda.heads = kda.key_heads = 16;
  kda.dk = kda.dv = 128;
  kda.taps = 4;
  spec.model = kda;
  EXPECT_EQ(spec.state_bytes(), 26935296);
  Rwkv6Spec rwkv5;
  rwkv5.version = Rwkv6Version::kFive;
  rwkv5.layers = 24;
  rwkv5.width = 2048;
  rwkv5.heads = 32;
  spec.model = rwkv5;
  EXPECT_EQ(spec.state_bytes(), 12976128);
  rwkv5.layers = 32;
  rwkv5.width = 4096;
  rwkv5.heads = 64;
  spec.model = rwkv5;
  EXPECT_EQ(spec.state_bytes(), 34603008);
  Mamba1Spec mamba;
  mamba.layers = 64;
  mamba.inner = 5120;
  mamba.state_size = 16;
  spec.model = mamba;
  EXPECT_EQ(spec.state_bytes(), 24903680);
}

}  // namespace
}  // namespace runnel
