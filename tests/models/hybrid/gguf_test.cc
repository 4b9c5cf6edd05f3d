// GGUF files of hybrid models: keys that are refused, and the shapes that tensors must have.
// tests/golden/gguf_test.cc tests their outputs.
#include "models/hybrid/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "models/bundle/bundle.h"
#include "models/bundle/weight_file.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/bundle/published_cases.h"

namespace runnel {
namespace {

using testing::HasSubstr;

const std::string kFolder = "tests/golden/gguf/";

// Golden files with one changed key. A value of null removes the key.
constexpr KeyCase kGgufCases[] = {
    {"qwen35", "block_count", "257", "block_count: expected an integer from 1 to 256, found 257"},
    {"qwen35", "nextn_predict_layers", "4", "expected an integer from 0 to 3, found 4"},
    {"qwen35", "attention.recurrent_layers", "[true]",
     "true or false for each of the 4 layers, found an array of 1"},
    {"qwen35", "attention.recurrent_layers", "[true, 1, false, false]", "layers, found 1"},
    {"qwen35", "full_attention_interval", "0", "full_attention_interval: expected an integer"},
    {"qwen35", "ssm.time_step_rank", "5", "a multiple of the 5 heads of ssm.time_step_rank"},
    {"qwen35", "ssm.group_count", "4", "ssm.group_count: expected a divisor of the number of rec"},
    {"qwen35", "ssm.conv_kernel", "1", "ssm.conv_kernel: expected an integer from 2 to 16"},
    {"qwen35", "rope.scaling.type", R"("yarn")", "'none', all that is implemented, found 'yarn'"},
    {"qwen35", "rope.dimension_count", "9", "expected an integer from 1 to 8, found 9"},
    {"qwen35", "attention.value_length", "4", "expected an integer from 8 to 8, found 4"},
    {"qwen35", "expert_count", "8",
     "0, as experts of this architecture are not implemented, found 8"},
    {"qwen35", "embedding_length", "null", "embedding_length: expected an integer"},
    {"lfm2", "attention.head_count_kv", "[0, 2]",
     "an integer from 0 to 16384 for each of the 3 layers, found an array of 2"},
    {"lfm2", "attention.head_count_kv", "[0, 2, -1]", "layers, found -1"},
    {"lfm2", "attention.head_count_kv", "[1, 2, 0]",
     "the same number in all layers that have one, found 1 and 2"},
    {"lfm2", "attention.head_count_kv", "3", "a divisor of the number of heads, found 3"},
    {"lfm2", "attention.sliding_window", "512", "a window of attention is not implemented"},
    {"lfm2", "attention.causal", "false", "attention.causal: expected true"},
    {"lfm2", "shortconv.l_cache", "17", "found 17"},
    {"lfm2", "context_length", "0", "context_length: expected an integer from 1"},
    {"granitehybrid", "rope.scaling.finetuned", "true", "rotary positions of this architecture"},
    {"granitehybrid", "rope.scaling.finetuned", "null", "found no such key, which means true"},
    {"granitehybrid", "logit_scale", "0", "logit_scale: expected a number from"},
    {"granitehybrid", "feed_forward_length", "0", "a feed-forward with a width"},
    {"granitehybrid_experts", "expert_used_count", "6", "at most the number of experts, found 6"},
    {"granitehybrid_experts", "expert_count", "513", "an integer from 0 to 512, found 513"},
    {"granitehybrid_experts", "expert_shared_feed_forward_length", "null",
     "expert_shared_feed_forward_length: expected an integer"},
    {"lfm2moe", "expert_gating_func", "1", "expected an integer from 2 to 2, found 1"},
    {"lfm2moe", "leading_dense_block_count", "3", "except in LFM2, found 3"},
    {"lfm2moe", "expert_count", "0", "expert_count: expected an integer from 1 to 512, found 0"},
    {"qwen35moe", "expert_feed_forward_length", "null", "expected an integer from 1"},
    {"qwen3next", "expert_count", "0", "expert_count: expected an integer from 1 to 512, found 0"},
    {"qwen3next", "ssm.group_count", "3", "ssm.group_count: expected a divisor of the number of"},
    {"nemotron_h_moe", "expert_group_count", "2", "an integer from 0 to 1, found 2"},
    {"nemotron_h_moe", "moe_latent_size", "8", "a latent size of experts is not implemented"},
    {"nemotron_h_moe", "expert_weights_norm", "false", "expert_weights_norm: expected true"},
    {"nemotron_h_moe", "expert_weights_norm", "null", "no such key, which means false"},
    {"qwen35", "rope.scaling.factor", "4.0", "1, as scaled rotary positions are not implemented"},
    {"lfm2", "rope.scale_linear", "0.5", "rope.scale_linear: expected 1"},
    {"falcon-h1", "rope.scaling.attn_factor", "1.2", "rope.scaling.attn_factor: expected 1"},
    {"falcon-h1", "attention.head_count", "[4]", "for each of the 2 layers, found an array of 1"},
    {"falcon-h1", "attention.head_count", "0", "heads that are together 1 to 16384 wide, found 0"},
    {"nemotron_h", "feed_forward_length", "[0, 28, 0, 27, 0]", "found 28 and 27"},
};

TEST(HybridGguf, UnsupportedOptionsAreRefusedByTheirKey) {
  for (const KeyCase& one : kGgufCases) {
    SCOPED_TRACE(std::string(one.model) + " " + one.key);
    const std::string path = kFolder + one.model + ".gguf";
    const auto file = WeightFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    Json keys = file->metadata();
    const auto fault = [&] {
      Faults faults(path);
      Spec spec;
      read_gguf_hybrid({{faults, &keys}, file->tensors(), path}, spec);
      return faults.ok() ? "" : faults.status().message();
    };
    const std::string prefix = keys["general.architecture"].get<std::string>() + ".";
    expect_refused_by_key(one, keys, prefix + one.key, fault);
  }
}

// The error for a golden file whose `key` has another number.
std::string fault_with(const std::string& name, const std::string& key, char number) {
  std::string bytes = *read_file(kFolder + name + ".gguf", 1 << 20);
  bytes[bytes.find(key) + key.size() + sizeof(uint32_t)] = number;  // after the number's type
  const TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  write_file(path, bytes);
  const auto bundle = load_bundle(path);
  return bundle.ok() ? "" : bundle.status().message();
}

TEST(HybridGguf, TensorsHaveTheShapesThatFollowFromTheKeys) {
  EXPECT_EQ(fault_with("lfm2", "lfm2.feed_forward_length", 30), "");
  EXPECT_THAT(fault_with("lfm2", "lfm2.feed_forward_length", 29), HasSubstr("'blk.0.ffn_gate"));
  EXPECT_THAT(fault_with("qwen35", "qwen35.ssm.state_size", 4), HasSubstr("'blk.0.ssm_conv1d"));
  EXPECT_THAT(fault_with("falcon-h1", "falcon-h1.attention.key_length", 5),
              HasSubstr("falcon-h1.attention.value_length"));
  EXPECT_THAT(fault_with("nemotron_h", "nemotron_h.ssm.group_count", 4), HasSubstr("'blk.0.ssm_"));
}

TEST(HybridGguf, LayersThatPredictFurtherValuesAreNotRead) {
  EXPECT_EQ(fault_with("qwen35", "qwen35.nextn_predict_layers", 1), "");
  EXPECT_THAT(fault_with("qwen35", "qwen35.nextn_predict_layers", 0),
              HasSubstr("blk.3.nextn.eh_proj.weight"));
}

}  // namespace
}  // namespace runnel
