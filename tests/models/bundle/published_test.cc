#include "models/bundle/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "base/file.h"
#include "base/hex.h"
#include "base/limits.h"
#include "models/bundle/bundle.h"
#include "models/bundle/config.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kPublishedFile = "config.json";

// A file of flash-linear-attention, without most of the keys that do not describe the network.
constexpr const char* kRwkv7 = R"({
  "_name_or_path": "", "architectures": ["RWKV7ForCausalLM"], "attn": null, "attn_mode": "chunk",
  "a_low_rank_dim": 5, "bos_token_id": 1, "eos_token_id": 2, "fuse_norm": true, "head_dim": 8,
  "hidden_act": "sqrelu", "hidden_ratio": 4.0, "hidden_size": 24, "id2label": {"0": "LABEL_0"},
  "intermediate_size": null, "max_position_embeddings": 2048, "model_type": "rwkv7",
  "norm_bias": true, "norm_eps": 1e-05, "norm_first": true, "num_heads": null,
  "num_hidden_layers": 2, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "value_dim": [24, 24], "vocab_size": 11})";

constexpr const char* kMamba2 = R"({
  "architectures": ["Mamba2ForCausalLM"], "conv_kernel": 4, "eos_token_id": [2, 5], "expand": 2,
  "head_dim": 5, "hidden_act": "silu", "hidden_size": 20, "layer_norm_epsilon": 1e-06,
  "model_type": "mamba2", "n_groups": 2, "norm_before_gate": true, "num_heads": 8,
  "num_hidden_layers": 2, "residual_in_fp32": true, "rms_norm": true, "state_size": 7,
  "tie_word_embeddings": true, "time_step_limit": [0.0, Infinity], "time_step_min": 0.001,
  "use_bias": false, "use_cache": true, "use_conv_bias": true, "vocab_size": 11})";

constexpr const char* kStateSpaces = R"({
  "d_model": 20, "d_intermediate": 0, "n_layer": 2, "vocab_size": 11, "rms_norm": true,
  "ssm_cfg": {"layer": "Mamba2", "d_state": 7, "headdim": 5, "chunk_size": 16},
  "attn_layer_idx": [], "attn_cfg": {}, "residual_in_fp32": true, "fused_add_norm": true,
  "pad_vocab_size_multiple": 16, "tie_embeddings": true})";

Rwkv7Spec rwkv7_sizes(Rwkv7Names names) {
  Rwkv7Spec sizes;
  sizes.names = names;
  sizes.layers = 2;
  sizes.width = sizes.value_width = 24;
  sizes.heads = 3;
  sizes.ffn = 96;
  sizes.ranks = {.decay = 4, .rate = 5, .value = 3, .gate = 6};
  sizes.head_norm_eps = names == Rwkv7Names::kOfficial ? 64e-5F : 8e-5F;
  sizes.key_eps = names == Rwkv7Names::kOfficial ? 0.0F : 1e-6F;
  sizes.table_rows = 13;
  return sizes;
}

Mamba2Spec mamba2_sizes(Mamba2Names names) {
  Mamba2Spec sizes;
  sizes.names = names;
  sizes.layers = 2;
  sizes.width = 20;
  sizes.heads = 8;
  sizes.head_size = 5;
  sizes.state_size = 7;
  sizes.groups = names == Mamba2Names::kHuggingFace ? 2 : 1;
  sizes.norm_eps = names == Mamba2Names::kHuggingFace ? 1e-6F : 1e-5F;
  sizes.table_rows = 16;
  return sizes;
}

Spec spec_of(const FamilySpec& model, int vocabulary = 11) {
  Spec spec;
  spec.name = "published";
  spec.vocabulary = vocabulary;
  spec.head = {HeadKind::kCategorical, vocabulary, 0};
  spec.model = model;
  return spec;
}

StoredTensors stored_tensors(const Spec& spec) {
  StoredTensors tensors;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    tensors[tensor.name] = {StoredType::kF32, tensor.shape, 0, 0};
  }
  return tensors;
}

Result<Spec> read(const std::string& json, const StoredTensors& tensors) {
  const Result<Json> tree = parse_published(json, kPublishedFile);
  EXPECT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_TRUE(is_published(*tree));
  return published_spec(*tree, tensors, "model.safetensors", kPublishedFile);
}

void expect_spec(const std::string& json, const Spec& expected) {
  Result<Spec> spec = read(json, stored_tensors(expected));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  spec->name = expected.name;  // published files have no name
  EXPECT_EQ(spec_to_json(*spec), spec_to_json(expected));
}

// `json` with one more member, which replaces a member of the same name.
std::string with(const std::string& json, const std::string& member) {
  Json tree = *parse_published(json, kPublishedFile);
  tree.merge_patch(Json::parse("{" + member + "}"));
  return tree.dump();
}

TEST(Published, Rwkv7IsReadUnderEveryName) {
  expect_spec(kRwkv7, spec_of(rwkv7_sizes(Rwkv7Names::kFla)));
  expect_spec(kRwkv7, spec_of(rwkv7_sizes(Rwkv7Names::kFlaX)));
  // A file with official names gets all its sizes from the tensors.
  expect_spec(R"({"model_type": "rwkv7"})", spec_of(rwkv7_sizes(Rwkv7Names::kOfficial), 13));
}

TEST(Published, Rwkv7sOptionsAreRead) {
  Rwkv7Spec sizes = rwkv7_sizes(Rwkv7Names::kFla);
  const StoredTensors tensors = stored_tensors(spec_of(sizes));
  const auto read_sizes = [&](const std::string& member) {
    const Result<Spec> spec = read(with(kRwkv7, member), tensors);
    EXPECT_TRUE(spec.ok()) << member << ": " << spec.status().message();
    return spec.ok() ? std::get<Rwkv7Spec>(spec->model) : Rwkv7Spec();
  };
  EXPECT_EQ(read_sizes(R"("intermediate_size": 50)").ffn, 50);
  EXPECT_EQ(read_sizes(R"("hidden_ratio": 3.0)").ffn, 96) << "a multiple of 32";
  EXPECT_EQ(read_sizes(R"("hidden_ratio": 2.7)").ffn, 64) << "24 * 2.7, rounded down first";
  EXPECT_EQ(read_sizes(R"("num_heads": 32)").heads, 3) << "head_dim goes first";
  EXPECT_EQ(read_sizes(R"("head_dim": null, "num_heads": 4)").heads, 4);
  EXPECT_EQ(read_sizes(R"("head_dim": null, "num_heads": 4)").head_norm_eps, 6e-5F);
  EXPECT_EQ(read_sizes(R"("value_dim": 48)").value_width, 48);
  EXPECT_EQ(read_sizes(R"("value_dim": null)").value_width, 24);
  EXPECT_EQ(read_sizes(R"("fuse_norm": false)").key_eps, 0.0F);
  EXPECT_FALSE(read_sizes(R"("norm_first": false)").input_norm);
  EXPECT_FALSE(read_sizes(R"("norm_bias": false)").norm_bias);
  EXPECT_EQ(read_sizes(R"("norm_eps": 0.001)").norm_eps, 0.001F);
  sizes.tied = true;
  expect_spec(with(kRwkv7, R"("tie_word_embeddings": true)"), spec_of(sizes));
}

TEST(Published, Mamba2IsReadUnderEveryName) {
  Mamba2Spec sizes = mamba2_sizes(Mamba2Names::kHuggingFace);
  expect_spec(kMamba2, spec_of(sizes));
  expect_spec(kStateSpaces, spec_of(mamba2_sizes(Mamba2Names::kStateSpaces)));
  sizes.tied = false;  // a head in the file is used
  expect_spec(kMamba2, spec_of(sizes));
  // Without a head, the embedding is the head, whatever the config says.
  sizes.tied = true;
  expect_spec(with(kMamba2, R"("tie_word_embeddings": false)"), spec_of(sizes));
  expect_spec(with(kStateSpaces, R"("tie_embeddings": false)"),
              spec_of(mamba2_sizes(Mamba2Names::kStateSpaces)));
}

TEST(Published, Mamba2sOptionsAreRead) {
  Mamba2Spec sizes = mamba2_sizes(Mamba2Names::kHuggingFace);
  sizes.bias = true;
  sizes.convolution_bias = false;
  sizes.dt_least = 0.25F;
  sizes.dt_most = 8.0F;
  sizes.norm_eps = 0.5F;
  sizes.norm_before_gate = true;  // flash-linear-attention's default, not kMamba2's
  expect_spec(with(kMamba2, R"("use_bias": true, "use_conv_bias": false, "norm_eps": 0.5,
                               "layer_norm_epsilon": null, "time_step_limit": null,
                               "dt_limit": [0.25, 8])"),
              spec_of(sizes));
  expect_spec(with(kMamba2, R"("n_groups": null)"),
              spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  sizes = mamba2_sizes(Mamba2Names::kStateSpaces);
  sizes.groups = 4;
  sizes.norm_before_gate = true;
  expect_spec(with(kStateSpaces, R"("ssm_cfg": {"ngroups": 4, "norm_before_gate": true})"),
              spec_of(sizes));
}

struct Refusal {
  const char* json;
  const StoredTensors& tensors;
  const char* member;
  const char* message;
};

// Expects that `one.json` with its changed member is refused with the message.
void expect_refused(const Refusal& one) {
  Json tree = *parse_published(one.json, kPublishedFile);
  tree.merge_patch(*parse_published("{" + std::string(one.member) + "}", kPublishedFile));
  const Result<Spec> spec = published_spec(tree, one.tensors, "model.safetensors", kPublishedFile);
  ASSERT_EQ(spec.status().code(), Code::kInvalidArgument) << one.member;
  EXPECT_THAT(spec.status().message(), HasSubstr(one.message)) << one.member;
  EXPECT_THAT(spec.status().message(), testing::StartsWith("config.json: "));
}

TEST(Published, UnsupportedOptionsOfRwkv7AreRefusedByName) {
  const StoredTensors rwkv7 = stored_tensors(spec_of(rwkv7_sizes(Rwkv7Names::kFla)));
  const StoredTensors official = stored_tensors(spec_of(rwkv7_sizes(Rwkv7Names::kOfficial)));
  const StoredTensors mamba2 = stored_tensors(spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  for (const Refusal& one : {
           Refusal{kRwkv7, rwkv7, R"("model_type": "llama")",
                   "or 'nemotron_h', the families that are implemented, found 'llama'"},
           Refusal{kRwkv7, rwkv7, R"("model_type": "qwen3_moe")",
                   "found 'qwen3_moe', whose experts are not implemented"},
           Refusal{kRwkv7, rwkv7, R"("model_type": null)", "implemented, found no such key"},
           Refusal{kRwkv7, rwkv7, R"("attn": {"layers": [1]})",
                   "attn: expected null, as attention in some of the layers is not implemented, "
                   "found attention in layer 1"},
           Refusal{kRwkv7, rwkv7, R"("hidden_act": "relu")", "hidden_act: expected 'sqrelu'"},
           Refusal{kRwkv7, rwkv7, R"("value_dim": [24, 48])", "value_dim: expected the same size"},
           Refusal{kRwkv7, official, R"("attn": {"layers": [1]})", "attn: expected null"},
           Refusal{kRwkv7, rwkv7, R"("elementwise_affine": false)",
                   "elementwise_affine: expected true, all that is implemented, found false"},
           Refusal{kRwkv7, rwkv7, R"("value_dim": 25)", "value_dim: expected a multiple of the 3"},
           Refusal{kRwkv7, rwkv7, R"("head_dim": 0)",
                   "head_dim: expected an integer from 1 to 16384"},
           Refusal{kRwkv7, rwkv7, R"("head_dim": 7)",
                   "head_dim: expected a size that divides hidden_size, 24, found 7"},
           Refusal{kRwkv7, rwkv7, R"("head_dim": 32)", "head_dim: expected a size that divides"},
           Refusal{kRwkv7, rwkv7, R"("head_dim": null)", "hidden_size, 24, found 64"},
           Refusal{kRwkv7, rwkv7, R"("head_dim": null, "num_heads": 25)", "num_heads: expected an"},
           Refusal{kRwkv7, rwkv7, R"("hidden_size": "24")", "hidden_size: expected an integer"},
           Refusal{
               kRwkv7, rwkv7, R"("vocab_size": 14)",
               "vocab_size: expected at most 13, the rows of 'model.embeddings.weight', found 14"},
           Refusal{kRwkv7, rwkv7, R"("norm_eps": NaN)", "norm_eps: expected a number"},
           Refusal{kRwkv7, rwkv7, R"("norm_eps": 0.2)",
                   "norm_eps: expected a number above 0 and at most 0.125, found 0.2"},
           Refusal{kRwkv7, rwkv7, R"("norm_eps": 0)", "norm_eps: expected a number above 0"},
           Refusal{
               kRwkv7, mamba2, R"("x": 0)",
               "tensor 'model.embeddings.weight' in model.safetensors, whose size 0 is an integer "
               "from 1 to 1048576, found no such tensor"},
       }) {
    expect_refused(one);
  }
}

TEST(Published, UnsupportedOptionsOfMamba2AreRefusedByName) {
  const StoredTensors mamba2 = stored_tensors(spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  const StoredTensors ssm = stored_tensors(spec_of(mamba2_sizes(Mamba2Names::kStateSpaces)));
  for (const Refusal& one : {
           Refusal{kMamba2, mamba2, R"("rms_norm": false)",
                   "rms_norm: expected true, all that is implemented, found false"},
           Refusal{kMamba2, mamba2, R"("D_has_hdim": true)", "D_has_hdim: expected false"},
           Refusal{kMamba2, mamba2, R"("hidden_act": "gelu")",
                   "hidden_act: expected 'silu' or 'swish'"},
           Refusal{kMamba2, mamba2, R"("num_heads": 7)", "expand: expected heads of 5 that are"},
           Refusal{kMamba2, mamba2, R"("n_groups": 3)",
                   "n_groups: expected a divisor of 8, the number of heads, found 3"},
           Refusal{kMamba2, mamba2, R"("n_groups": null, "state_size": 5)",
                   "n_groups: expected this key, or 'backbone.layers.0.mixer.conv1d.weight' of 40 "
                   "channels and a multiple of 10, found 68 channels"},
           Refusal{kMamba2, mamba2, R"("state_size": 16384)",
                   "state_size: expected this times the groups to be at most 16384, found 32768"},
           Refusal{kMamba2, mamba2, R"("expand": 1000, "num_heads": 4000)",
                   "expand: expected this times the width to be at most 16384, found 20000"},
           Refusal{kMamba2, mamba2, R"("layer_norm_epsilon": 0)",
                   "layer_norm_epsilon: expected a number above 0 and at most 1.0, found 0"},
           Refusal{
               kMamba2, mamba2, R"("time_step_limit": [2, 1])",
               "time_step_limit: expected two numbers, the least first, the most above 0, found "
               "[2,1]"},
           Refusal{kMamba2, mamba2, R"("time_step_limit": [0, 0])", "found [0,0]"},
           Refusal{kMamba2, mamba2, R"("time_step_limit": [0, {"__float__": "NaN"}])",
                   "time_step_limit.most: expected a number from 0.0 to infinity, found an object"},
           Refusal{kMamba2, mamba2, R"("time_step_limit": [-1, 1])",
                   "time_step_limit.least: expected"},
           Refusal{kMamba2, mamba2, R"("conv_kernel": 1)",
                   "conv_kernel: expected an integer from 2"},
           Refusal{kStateSpaces, ssm, R"("model_type": "mamba2", "ssm_cfg": {"layer": null})",
                   "ssm_cfg.layer: expected 'Mamba2', the layer of this model_type, found no such "
                   "key"},
           Refusal{kStateSpaces, ssm, R"("ssm_cfg": {"layer": 2})",
                   "ssm_cfg.layer: expected a string, found 2"},
           Refusal{kStateSpaces, ssm, R"("ssm_cfg": {"ngroups": 3})",
                   "ssm_cfg.ngroups: expected a divisor of 8"},
           Refusal{kStateSpaces, ssm, R"("attn_layer_idx": [1])",
                   "attn_layer_idx: expected null, as attention in some of the layers is not "
                   "implemented, found attention in layer 1"},
           Refusal{kStateSpaces, ssm,
                   R"("attn_layer_idx": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17])",
                   "found attention in layers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 "
                   "and 2 more"},
           Refusal{kStateSpaces, ssm, R"("attn_cfg": {"num_heads": 4})",
                   R"(attn_cfg: expected null, as attention in some of the layers is not )"
                   R"(implemented, found {"num_heads":4})"},
           Refusal{kStateSpaces, ssm, R"("d_intermediate": 64)",
                   "d_intermediate: expected an integer"},
           Refusal{kStateSpaces, ssm, R"("rms_norm": false)", "rms_norm: expected true"},
       }) {
    expect_refused(one);
  }
}

// If only tensors give a size, the error names the tensors and not keys that the file lacks.
TEST(Published, TensorsThatDisagreeAreNamed) {
  const auto refused = [](const char* tensor, size_t dimension, int64_t size) {
    StoredTensors tensors = stored_tensors(spec_of(rwkv7_sizes(Rwkv7Names::kOfficial)));
    tensors[tensor].shape[dimension] = size;
    return read(R"({"model_type": "rwkv7"})", tensors).status().message();
  };
  EXPECT_EQ(
      refused("blocks.0.att.r_k", 0, 5),
      "config.json: the file: expected tensor 'emb.weight' in model.safetensors, whose size 1 is a "
      "multiple of 5, the rows of 'blocks.0.att.r_k', found 24");
  EXPECT_EQ(refused("blocks.0.att.value.weight", 0, 25),
            "config.json: the file: expected tensor 'blocks.0.att.value.weight' in "
            "model.safetensors, whose "
            "size 0 is a multiple of 3, the rows of 'blocks.0.att.r_k', found 25");
}

TEST(Published, ALimitOfDtMayBeInfinite) {
  const Spec expected = spec_of(mamba2_sizes(Mamba2Names::kHuggingFace));
  for (const char* const most : {"Infinity", R"({"__float__": "Infinity"})", "1e30", "2e9"}) {
    Json config = *parse_published(kMamba2, kPublishedFile);
    config["time_step_limit"] =
        *parse_published("[0.0, " + std::string(most) + "]", kPublishedFile);
    expect_spec(config.dump(), expected);
  }
  EXPECT_FALSE(read(with(kMamba2, R"("time_step_limit": [{"__float__": "-Infinity"}, 1])"),
                    stored_tensors(expected))
                   .ok());
}

TEST(Published, InfinityAndNanAreRead) {
  const auto tree = parse_published(
      R"({"a": [Infinity, -Infinity, NaN], "b": "Infinity \" NaN", "NaN": "\\"})", kPublishedFile);
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_EQ((*tree)["a"], (Json{"Infinity", "-Infinity", "NaN"}));
  EXPECT_EQ((*tree)["b"], "Infinity \" NaN");
  EXPECT_EQ((*tree)["NaN"], "\\");
  EXPECT_FALSE(parse_published("{\"a\": Infinit}", kPublishedFile).ok());
  EXPECT_FALSE(parse_published("{\"a\": \"\\", kPublishedFile).ok());
}

TEST(Published, AFaultIsReportedAtItsPlace) {
  const auto fault = [](const char* json) {
    return parse_published(json, kPublishedFile).status().message();
  };
  EXPECT_THAT(fault("{\"a\": [0.0, Infinity],\n \"b\": [-Infinity, NaN],\n \"c\": 1,\n}"),
              HasSubstr("line 4, column 1"));
  EXPECT_THAT(fault("{\"a\": [NaN, -Infinity, Infinity,]}"), HasSubstr("line 1, column 33"));
  EXPECT_THAT(fault("{\"a\": 1Infinity}"), HasSubstr("line 1, column 9"));
}

class PublishedDirectory : public testing::Test {
 protected:
  void write(const std::string& config, const Spec& spec) {
    write_file(path("/config.json"), config);
    write_file(path("/model.safetensors"),
               safetensors_file(raw_tensors(spec, random_tensors(spec, 1), StoredType::kF32)));
  }
  std::string path(const std::string& name) const { return directory_.path() + name; }
  Bundle load() const {
    Result<Bundle> bundle = load_bundle(directory_.path());
    EXPECT_TRUE(bundle.ok()) << bundle.status().message();
    return bundle.ok() ? std::move(*bundle) : Bundle();
  }

  const TempDir directory_;
};

TEST_F(PublishedDirectory, IsServedUnchanged) {
  write(kMamba2, spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  const Bundle bundle = load();
  EXPECT_EQ(bundle.spec.name, std::filesystem::path(directory_.path()).filename().string());
  EXPECT_EQ(bundle.spec.vocabulary, 11);
  EXPECT_EQ(bundle.spec.eos, (std::vector<int32_t>{2, 5}));
  EXPECT_EQ(bundle.spec.text, TextKind::kNone);
  EXPECT_FALSE(bundle.spec.begin.has_value());
  // The spec that a client gets can be parsed by the client.
  EXPECT_TRUE(parse_spec(spec_to_json(bundle.spec), kPublishedFile).ok());
}

// Every config.json of Mamba-2 has an Infinity, but the error must not be about that.
TEST_F(PublishedDirectory, ATrailingCommaIsReportedInItsLine) {
  std::string config = kMamba2;
  config.replace(config.rfind('}'), 1, ",\n}");
  const auto lines = std::ranges::count(config, '\n') + 1;
  write(config, spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  EXPECT_THAT(load_bundle(directory_.path()).status().message(),
              AllOf(HasSubstr("config.json: not valid JSON"),
                    HasSubstr("line " + std::to_string(lines) + ", column 1")));
}

TEST_F(PublishedDirectory, GenerationConfigNamesTheValuesThatEndTexts) {
  write(kMamba2, spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  write_file(path("/generation_config.json"), R"({"eos_token_id": [7, 3, 7, 50256, -1]})");
  EXPECT_EQ(load().spec.eos, (std::vector<int32_t>{3, 7}));
  for (const char* const none : {R"({"temperature": Infinity})", R"({"eos_token_id": []})"}) {
    write_file(path("/generation_config.json"), none);
    EXPECT_EQ(load().spec.eos, (std::vector<int32_t>{2, 5})) << none;
  }
  write_file(path("/generation_config.json"), R"({"eos_token_id": "</s>"})");
  EXPECT_THAT(load_bundle(directory_.path()).status().message(),
              HasSubstr("generation_config.json: eos_token_id: expected a value or a list"));
}

// As in Qwen3.5, whose config.json also describes a vision model.
TEST(Published, EosIsReadFromTheTextConfigUnlessItIsOutside) {
  const std::string file = kPublishedFile;
  const auto eos = [&](const char* config) { return published_eos(Json::parse(config), file); };
  EXPECT_EQ(*eos(R"({"text_config": {"eos_token_id": 7}})"), std::vector<int64_t>{7});
  EXPECT_EQ(*eos(R"({"eos_token_id": null, "text_config": {"eos_token_id": [7, 3]}})"),
            (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(*eos(R"({"eos_token_id": 2, "text_config": {"eos_token_id": 7}})"),
            std::vector<int64_t>{2});
  EXPECT_EQ(*eos(R"({"text_config": {}})"), std::vector<int64_t>());
  EXPECT_THAT(eos(R"({"text_config": {"eos_token_id": "</s>"}})").status().message(),
              HasSubstr("config.json: text_config.eos_token_id: expected a value or a list"));
  EXPECT_FALSE(eos(R"({"text_config": 5})").ok());
}

// Rows beyond the tokenizer's values are padding.
TEST_F(PublishedDirectory, ItsTokenizerDefinesText) {
  Mamba2Spec sizes = mamba2_sizes(Mamba2Names::kHuggingFace);
  sizes.table_rows = 300;
  write(with(kMamba2, R"("vocab_size": 299)"), spec_of(sizes, 299));
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<char>(byte);
    vocabulary += std::to_string(byte + 1) + " b'\\x" + hex({&value, 1}) + "' 1\n";
  }
  write_file(path("/rwkv_vocab_v20230424.txt"), vocabulary);
  const Bundle bundle = load();
  EXPECT_EQ(bundle.spec.text, TextKind::kTokenizer);
  EXPECT_EQ(bundle.spec.vocabulary, 257);
  EXPECT_EQ(bundle.spec.head.values, 257);
  EXPECT_EQ(bundle.spec.eos, (std::vector<int32_t>{0, 2, 5})) << "the tokenizer ends texts with 0";
  ASSERT_NE(bundle.tokenizer, nullptr);
  EXPECT_EQ(*bundle.tokenizer->encode("a"), (std::vector<int32_t>{'a' + 1}));
  write(kMamba2, spec_of(mamba2_sizes(Mamba2Names::kHuggingFace)));
  EXPECT_THAT(load_bundle(directory_.path()).status().message(),
              HasSubstr("config.json has 11 values, its tokenizer has 256"));
}

TEST_F(PublishedDirectory, ItsTokenizerPutsAtMostOneValueBeforeAText) {
  Mamba2Spec sizes = mamba2_sizes(Mamba2Names::kHuggingFace);
  sizes.table_rows = 1000;
  write(with(kMamba2, R"("vocab_size": 1000)"), spec_of(sizes, 1000));
  const auto text = read_file("tests/golden/tokenizers/llama/tokenizer.json", kMaxConfigBytes);
  ASSERT_TRUE(text.ok()) << text.status().message();
  Json tokenizer = Json::parse(*text);
  write_file(path("/tokenizer.json"), tokenizer.dump());
  EXPECT_EQ(load().spec.begin->value, 1);
  tokenizer["post_processor"]["special_tokens"]["<s>"]["ids"] = {1, 2};
  write_file(path("/tokenizer.json"), tokenizer.dump());
  EXPECT_THAT(load_bundle(directory_.path()).status().message(),
              HasSubstr("tokenizer.json: expected at most one value before a text, found 2"));
}

// published.json of a golden is the file that the model's own library saves.
TEST(Published, ConfigsOfTheirOwnLibrariesMatchTheGoldens) {
  for (const std::string name : {"rwkv7_fla", "rwkv7_fla_x", "mamba2_state_spaces",
                                 "mamba2_norm_first", "mamba2_hugging_face", "mamba2_fla"}) {
    SCOPED_TRACE(name);
    const std::string golden = "tests/golden/" + name;
    const TempDir directory;
    std::filesystem::copy(golden + "/model.safetensors", directory.path());
    std::filesystem::copy(golden + "/published.json", directory.path() + "/config.json");
    const Result<Bundle> found = load_bundle(directory.path());
    const Result<Bundle> expected = load_bundle(golden);
    ASSERT_TRUE(found.ok() && expected.ok()) << found.status().message();
    EXPECT_EQ(Json::parse(spec_to_json(found->spec))["model"],
              Json::parse(spec_to_json(expected->spec))["model"]);
  }
}

TEST_F(PublishedDirectory, AnUnexpectedTensorIsNamed) {
  Spec spec = spec_of(rwkv7_sizes(Rwkv7Names::kFla));
  TensorMap tensors = random_tensors(spec, 1);
  auto raw = raw_tensors(spec, tensors, StoredType::kF32);
  raw["model.layers.0.attn.extra"] = raw["model.norm.weight"];
  write_file(path("/config.json"), kRwkv7);
  write_file(path("/model.safetensors"), safetensors_file(raw));
  EXPECT_THAT(load_bundle(directory_.path()).status().message(),
              HasSubstr("'model.layers.0.attn.extra' [24]"));
  raw.erase("model.layers.0.attn.extra");
  raw["model.norm.weight"].data.replace(0, 4, std::string("\0\0\xc0\x7f", 4));
  write_file(path("/model.safetensors"), safetensors_file(raw));
  EXPECT_THAT(load().check_numbers().message(),
              HasSubstr("tensor 'model.norm.weight': element [0] is NaN"));
  raw.erase("lm_head.weight");
  write_file(path("/model.safetensors"), safetensors_file(raw));
  EXPECT_THAT(load_bundle(directory_.path()).status().message(),
              HasSubstr("1 tensor expected by config.json but missing: 'lm_head.weight' [13, 24]"));
}

}  // namespace
}  // namespace runnel
