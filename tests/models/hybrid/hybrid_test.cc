// Models with attention: options that are refused, the number of positions, and that outputs depend
// on nothing but the sequence's own past.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/bundle/config.h"
#include "models/state/file.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/bundle/published_cases.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr KeyCase kCases[] = {
    {"hybrid_qwen3_5", "rope_parameters", R"({"rope_type":"yarn"})",
     "rope_parameters.rope_type: expected 'default', all that is implemented, found 'yarn'"},
    {"hybrid_qwen3_5", "rope_scaling", R"({"type":"linear"})", "found 'linear'"},
    {"hybrid_qwen3_5", "hidden_act", "\"gelu\"", "found 'gelu'"},
    {"hybrid_qwen3_5", "attn_output_gate", "false", "true, all that is implemented, found false"},
    {"hybrid_qwen3_5", "layer_types", R"(["linear_attention","sliding_attention"])",
     "the kinds of layers that are implemented, found 'sliding_attention'"},
    {"hybrid_qwen3_5", "layer_types", R"(["linear_attention"])", "found 1 kinds for 4"},
    {"hybrid_qwen3_5", "num_key_value_heads", "3", "a divisor of the number of heads, found 3"},
    {"hybrid_qwen3_5", "linear_num_key_heads", "3", "a divisor of the number of recurrent heads"},
    {"hybrid_qwen3_5", "max_position_embeddings", "0", "found 0"},
    {"hybrid_granite_experts", "num_local_experts", "513", "an integer from 0 to 512, found 513"},
    {"hybrid_granite_experts", "num_experts_per_tok", "7",
     "at most the number of experts, found 7"},
    {"hybrid_granite_experts", "num_experts_per_tok", "0", "an integer from 1 to 64, found 0"},
    {"hybrid_granite_experts", "intermediate_size", "0", "intermediate_size: expected an integer"},
    {"gguf/qwen35moe", "shared_expert_intermediate_size", "0", "integer from 1 to 65536, found 0"},
    {"gguf/qwen35moe", "norm_topk_prob", "false", "true, all that is implemented, found false"},
    {"gguf/qwen35moe", "mlp_only_layers", "[1]", "a layer without experts is not implemented"},
    {"hybrid_qwen3_next", "decoder_sparse_step", "2", "an integer from 1 to 1, found 2"},
    {"gguf/lfm2moe", "num_dense_layers", "3", "none without before it except in LFM2, found 3"},
    {"gguf/lfm2moe", "routed_scaling_factor", "0", "routed_scaling_factor: expected a number"},
    {"gguf/lfm2moe", "num_experts_per_tok", "7", "at most the number of experts, found 7"},
    {"hybrid_qwen3_5", "num_experts", "6",
     "experts of this model_type are not implemented, found 6"},
    {"hybrid_granite", "position_embedding_type", "\"alibi\"", "found 'alibi'"},
    {"hybrid_granite", "mamba_d_head", "24", "8 heads that are together 128 wide, found 24"},
    {"hybrid_granite", "logits_scaling", "0", "logits_scaling: expected a number from"},
    {"hybrid_falcon_h1", "ssm_multipliers", "[1.0]", "ssm_multipliers: expected 5 numbers"},
    {"hybrid_lfm2", "conv_L_cache", "1", "found 1"},
    {"hybrid_lfm2", "sliding_window", "30", "a window of attention is not implemented"},
    {"hybrid_nemotron_h", "hybrid_override_pattern", "\"MX*\"", "'M', '*', '-' and 'E'"},
    {"gguf/nemotron_h_moe", "n_group", "2", "n_group: expected an integer from 1 to 1, found 2"},
    {"gguf/nemotron_h_moe", "moe_latent_size", "8", "a latent size of experts is not implemented"},
    {"gguf/nemotron_h_moe", "mlp_bias", "true", "no biases in a feed-forward with experts"},
    {"gguf/nemotron_h_moe", "n_routed_experts", "0", "an integer from 1 to 512, found 0"},
    {"hybrid_nemotron_h", "sliding_window", "512", "a window of attention is not implemented"},
    {"hybrid_nemotron_h", "mlp_hidden_act", "\"silu\"", "found 'silu'"},
};

TEST(HybridPublished, UnsupportedOptionsAreRefusedByTheirKey) { expect_refused(kCases); }

// Configs of other versions of transformers.
TEST(HybridPublished, OlderKeysAreRead) {
  PublishedFiles granite = read_published("hybrid_granite");
  const Spec expected = *granite.spec();
  granite.config["layers_block_type"] = Json{"mamba", "attention", "mamba", "attention"};
  granite.config.erase("layer_types");
  EXPECT_EQ(std::get<HybridSpec>(granite.spec()->model).layers,
            std::get<HybridSpec>(expected.model).layers);
  PublishedFiles qwen = read_published("hybrid_qwen3_5");
  const int rotated = std::get<HybridSpec>(qwen.spec()->model).rotated;
  for (const double share : {0.25, 0.5}) {
    qwen.config["rope_parameters"].erase("partial_rotary_factor");
    qwen.config["partial_rotary_factor"] = share;
    EXPECT_EQ(std::get<HybridSpec>(qwen.spec()->model).rotated, rotated * share / 0.25);
  }
}

TEST(HybridPublished, OlderKeysOfNemotronAreRead) {
  PublishedFiles files = read_published("hybrid_nemotron_h");
  const auto sizes = [&] { return std::get<HybridSpec>(files.spec()->model); };
  files.config["mamba_n_groups"] = 1;
  files.config["mamba_d_conv"] = 5;
  files.config["mamba_conv_bias"] = false;
  files.config["time_step_limit"] = Json{0.1, 0.3};
  EXPECT_EQ(sizes().key_heads, 1);
  EXPECT_EQ(sizes().taps, 5);
  EXPECT_FALSE(sizes().convolution_bias);
  EXPECT_EQ(sizes().dt_least, 0.1F);
  files.config["mamba_dt_limit"] = Json{0.2, 0.9};
  EXPECT_EQ(sizes().dt_least, 0.2F);
  EXPECT_EQ(sizes().dt_most, 0.9F);
}

// The rotary angles of a golden model whose own keys of them are replaced by `keys`.
std::pair<float, int> rotary_of(const std::string& model, const Json& keys) {
  PublishedFiles published = read_published(model);
  for (const char* const key :
       {"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"}) {
    published.config.erase(key);
  }
  published.config.update(keys);
  const Result<Spec> spec = published.spec();
  if (!spec.ok()) ADD_FAILURE() << spec.status().message();
  const auto sizes = spec.ok() ? std::get<HybridSpec>(spec->model) : HybridSpec();
  return {sizes.theta, sizes.rotated};
}

TEST(HybridPublished, RotaryAnglesAreThoseOfTransformers) {
  const int whole =
      std::get<HybridSpec>(read_published("hybrid_falcon_h1").spec()->model).head_size;
  // The defaults of the classes in transformers 5. Version 4 had 1e5 for Falcon-H1, but every file
  // that it wrote has the key.
  EXPECT_EQ(rotary_of("hybrid_falcon_h1", Json::object()), (std::pair{1e4F, whole}));
  EXPECT_EQ(rotary_of("hybrid_qwen3_5", Json::object()).first, 1e4F);
  EXPECT_EQ(rotary_of("hybrid_lfm2", Json::object()).first, 1e6F);
  // An object precedes keys outside of it, under both of its names.
  for (const char* const object : {"rope_parameters", "rope_scaling"}) {
    const Json keys = {{"rope_theta", 5.0},
                       {object, {{"rope_type", "default"}, {"rope_theta", 50.0}}}};
    EXPECT_EQ(rotary_of("hybrid_falcon_h1", keys).first, 50.0F) << object;
    EXPECT_EQ(rotary_of("hybrid_qwen3_5", keys).first, 50.0F) << object;
  }
  // Classes other than Qwen's rotate whole heads, whatever this key says.
  EXPECT_EQ(rotary_of("hybrid_falcon_h1", {{"partial_rotary_factor", 0.5}}).second, whole);
}

TEST(HybridConfig, TheLeastDtIsAtMostTheLargest) {
  Json config = Json::parse(spec_to_json(small_hybrid_spec(HybridStyle::kGranite)));
  config["model"]["dt_least"] = config["model"]["dt_most"] = 0.5;
  EXPECT_TRUE(parse_spec(config.dump(), "config.json").ok());
  config["model"]["dt_least"] = 0.6;
  EXPECT_THAT(parse_spec(config.dump(), "config.json").status().message(),
              HasSubstr("model.dt_least: expected at most 0.5 (model.dt_most), found 0.6"));
}

TEST(HybridPublished, DefaultPositionsAreThoseOfTheModelUpTo4096) {
  Spec lfm2 = *read_published("hybrid_lfm2").spec();
  EXPECT_EQ(lfm2.positions, 4096);
  EXPECT_EQ(lfm2.most_positions, 128000);
  Spec granite = *read_published("hybrid_granite").spec();
  EXPECT_EQ(granite.positions, 2048);
  granite.name = "granite";
  EXPECT_TRUE(set_context(100, granite).ok());
  EXPECT_EQ(granite.positions, 100);
  const Status beyond = set_context(2049, granite);
  EXPECT_EQ(beyond.code(), Code::kInvalidArgument);
  EXPECT_EQ(beyond.message(),
            "context is 2049, and model 'granite' has at most 2048 positions: lower --context");
  Spec endless = small_mamba1_spec();
  EXPECT_TRUE(set_context(100, endless).ok());
  EXPECT_EQ(endless.positions, 0);
}

TEST(HybridPublished, StatesOfPublishedModelsHaveTheirSizes) {
  Spec spec;
  spec.positions = 4096;
  HybridSpec qwen;  // Qwen3.5-0.8B
  for (int i = 0; i < 6; ++i) qwen.layers += "rrra";
  qwen.width = 1024;
  qwen.heads = 8;
  qwen.kv_heads = 2;
  qwen.head_size = 256;
  qwen.recurrent_heads = qwen.key_heads = 16;
  qwen.dk = qwen.dv = 128;
  qwen.taps = 4;
  spec.model = qwen;
  EXPECT_EQ(spec.position_bytes(), 2 * 12288);  // fp32
  EXPECT_EQ(spec.state_bytes(), 20201472 + 4096 * spec.position_bytes());
}

constexpr ModelLimits kLimits = {.slots = 3, .rows = 3, .values = 64, .steps = 1};

std::vector<int32_t> some_values(int count) {
  std::vector<int32_t> values(count);
  for (int i = 0; i < count; ++i) values[i] = i * i % 11;
  return values;
}

// The continuation of `count` values in slot 0. change() is called before and after the values.
template <typename Change>
HarnessRun continued(const Bundle& bundle, Precision precision, int count, const Change& change) {
  CpuModel made = make_cpu_model(bundle, {}, kLimits, precision);
  Model& model = *made.model;
  const std::vector<int32_t> values = some_values(count);
  change(model, 0);
  begin_sequence(model, 0, values[0]);
  feed(model, 0, {values.begin() + 1, values.end()}, 50, Want::kNothing);
  change(model, count - 1);
  sample_from(model, 0, values.back(), count - 1, 5, 20);
  HarnessRun generated = generate(model, 0, 20);
  generated.state.clear();  // it includes data after the last position
  return generated;
}

// Fills the caches of slot 0 after its last position with NaN, in either type.
void poison(Model& model, int consumed) {
  const StateLayout& layout = model.layout();
  std::vector<std::byte> state(layout.state_bytes);
  model.read(0, 0, state);
  for (const StatePart& part : layout.parts) {
    if (!part.paged) continue;
    const bool keys = part.name.ends_with(".keys");
    const int64_t size = element_bytes(part.type);
    for (int64_t page = 0; page < part.shape[0]; ++page) {
      for (int64_t i = 0; i < part.entry_bytes() / size; ++i) {
        const int64_t in_page = keys ? i % kPagePositions : i / part.shape[3] % kPagePositions;
        if (page * kPagePositions + in_page < consumed) continue;
        std::memset(state.data() + part.offset + page * part.stride + i * size, 0xff, size);
      }
    }
  }
  model.write(0, 0, state);
}

TEST(HybridModel, DataAfterTheLastPositionDoesNotChangeResults) {
  for (const HybridStyle style : {HybridStyle::kQwen35, HybridStyle::kFalconH1}) {
    const Bundle bundle = random_bundle(small_hybrid_spec(style), 3);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      for (const int count : {1, 63, 64, 65, 130}) {
        const auto plain = continued(bundle, precision, count, [](Model&, int) {});
        EXPECT_EQ(continued(bundle, precision, count, poison), plain) << count;
        EXPECT_TRUE(std::isfinite(plain.log_probs.back()));
      }
    }
  }
}

// A thread that is late for an operation sees a position that has already advanced, even beyond the
// last position.
TEST(HybridModel, ASequenceFillsItsPositionsOnAnyNumberOfThreads) {
  const Bundle bundle = random_bundle(small_hybrid_spec(HybridStyle::kQwen35), 3);
  const std::vector<int32_t> values = some_values(200);
  const auto run = [&](int threads) {
    CpuModel made = make_cpu_model(bundle, {{}, threads}, kLimits);
    begin_sequence(*made.model, 0, values[0]);
    feed(*made.model, 0, {values.begin() + 1, values.end()}, 64, Want::kNothing);
    sample_from(*made.model, 0, values.back(), 199, 5, 101);
    return generate(*made.model, 0, 101);
  };
  const HarnessRun alone = run(1);
  EXPECT_EQ(alone.values.size(), 101U);
  for (const int threads : {2, 4}) EXPECT_EQ(run(threads), alone) << threads;
}

// A state file has the pages in use, and no data of the slot's earlier sequences.
TEST(HybridModel, AStateFileHoldsOnlyItsOwnSequence) {
  const Spec spec = small_hybrid_spec(HybridStyle::kQwen35);
  const Bundle bundle = random_bundle(spec, 3);
  const std::vector<int32_t> values = some_values(70);
  const auto file_of = [&](bool used_before) {
    CpuModel made = make_cpu_model(bundle, {}, kLimits);
    Model& model = *made.model;
    if (used_before) {
      begin_sequence(model, 0, 3);
      feed(model, 0, some_values(200), 64, Want::kNothing);
    }
    begin_sequence(model, 0, values[0]);
    feed(model, 0, {values.begin() + 1, values.end()}, 64, Want::kNothing);
    StateWriter writer("m", model.layout(),
                       {.position = 70, .pending = values.back(), .bytes = state_bytes(model, 0)},
                       nullptr);
    return writer.next(1 << 22);
  };
  const std::string file = file_of(false);
  EXPECT_EQ(file, file_of(true));
  EXPECT_EQ(file[8], 2) << "the version of states with caches";
  const int64_t pages = 2 * kPagePositions * spec.position_bytes();
  EXPECT_GT(std::ssize(file), pages);
  EXPECT_LT(std::ssize(file), 2 * pages);
}

TEST(HybridModel, AStateOfAnotherCacheOrALongerContextIsRefused) {
  Spec spec = small_hybrid_spec(HybridStyle::kQwen35);
  const Bundle bundle = random_bundle(spec, 3);
  CpuModel fp32 = make_cpu_model(bundle, {}, kLimits);
  const auto bf16 = make_model(bundle, *fp32.backend, kLimits, Precision::kFp32, DType::kBF16);
  ASSERT_TRUE(bf16.ok());
  const StateLayout& layout = (*bf16)->layout();
  EXPECT_THAT(layout.numerics, HasSubstr("/state-fp32+cache-bf16"));
  EXPECT_LT(layout.state_bytes, fp32.model->layout().state_bytes);

  StateHeader header;
  header.model = "m";
  header.numerics = layout.numerics;
  header.position = 70;
  header.pending = 1;
  header.parts = fp32.model->layout().parts;
  for (StatePart& part : header.parts) {
    if (part.paged) part.shape[0] = 2;
  }
  const std::string model = "m";
  const auto refusal = [&](const StateLayout& of) {
    return check_state(header, {.spec = spec, .layout = of, .model = model, .any_numerics = true})
        .message();
  };
  EXPECT_EQ(refusal(fp32.model->layout()), "");
  EXPECT_THAT(refusal(layout), AllOf(HasSubstr("f32"), HasSubstr("bf16")));
  spec.positions = 60;
  EXPECT_THAT(refusal(fp32.model->layout()),
              HasSubstr("ends at 61: start the server with a larger --context"));
}

}  // namespace
}  // namespace runnel
