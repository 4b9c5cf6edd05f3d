#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "base/limits.h"
#include "models/bundle/bundle.h"
#include "models/spec.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kFile = "some/config.json";

constexpr const char* kImage = R"({
  "runnel_bundle": 1, "name": "mnist",
  "model": {
    "layers": 4, "width": 128, "heads": 4, "query_size": 32, "value_size": 32, "ffn": 512,
    "attention": {"feature_map": "elu", "eps": 1e-6},
    "norm": {"kind": "layer", "placement": "post", "eps": 1e-5, "final": true},
    "activation": "relu",
    "embedding": {"combine": "concat", "value_width": 64},
    "position": {"kind": "table", "length": 783},
    "head": {"kind": "mixture_of_logistics", "components": 10}
  },
  "values": 256, "begin": {"value": 0}, "image": {"height": 28, "width": 28, "channels": 1}
})";

constexpr const char* kSymbols = R"({
  "runnel_bundle": 1, "name": "tiny.lm_2-a",
  "model": {
    "layers": 2, "width": 20, "heads": 3, "query_size": 7, "value_size": 5, "ffn": 33,
    "attention": {"feature_map": "elu"}, "norm": {"kind": "layer", "placement": "post"},
    "activation": "gelu", "embedding": {"combine": "add", "value_width": 20},
    "position": {"kind": "sinusoidal"}, "head": {"kind": "categorical"}
  },
  "values": 3, "symbols": ["a", "é", "\n"]
})";

constexpr const char* kText = R"({
  "runnel_bundle": 1, "name": "prose",
  "model": {
    "layers": 2, "width": 20, "heads": 3, "query_size": 7, "value_size": 5, "ffn": 33,
    "attention": {"feature_map": "elu"}, "norm": {"kind": "layer", "placement": "post"},
    "activation": "gelu", "embedding": {"combine": "add", "value_width": 20},
    "position": {"kind": "none"}, "head": {"kind": "categorical"}
  },
  "values": 256, "text": "bytes"
})";

TEST(Spec, ReadsAnImageModel) {
  const Result<Spec> spec = parse_spec(kImage, kFile);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->name, "mnist");
  const LinearTransformerSpec& sizes = sizes_of(*spec);
  EXPECT_EQ(sizes.layers, 4);
  EXPECT_EQ(sizes.width, 128);
  EXPECT_EQ(sizes.heads, 4);
  EXPECT_EQ(sizes.query_size, 32);
  EXPECT_EQ(sizes.value_size, 32);
  EXPECT_EQ(sizes.ffn, 512);
  EXPECT_EQ(sizes.feature_map, FeatureMap::kElu);
  EXPECT_EQ(sizes.attention_eps, 1e-6F);
  EXPECT_EQ(sizes.norm_eps, 1e-5F);
  EXPECT_TRUE(sizes.final_norm);
  EXPECT_EQ(sizes.activation, Activation::kRelu);
  EXPECT_EQ(spec->vocabulary, 256);
  EXPECT_EQ(sizes.combine, Combine::kConcat);
  EXPECT_EQ(sizes.value_width, 64);
  EXPECT_EQ(sizes.position_width(), 64);
  EXPECT_EQ(sizes.position, PositionKind::kTable);
  EXPECT_EQ(spec->positions, 783);
  EXPECT_EQ(spec->max_length(), 784);
  EXPECT_EQ(spec->head.kind, HeadKind::kMixtureOfLogistics);
  EXPECT_EQ(spec->head.values, 256);
  EXPECT_EQ(spec->head.width(), 30);
  ASSERT_TRUE(spec->begin.has_value());
  EXPECT_EQ(spec->begin->value, 0);
  EXPECT_TRUE(spec->begin->histogram.empty());
  ASSERT_TRUE(spec->image.has_value());
  EXPECT_EQ(spec->image->bytes(), 784);
  EXPECT_TRUE(spec->symbols.empty());
  EXPECT_EQ(spec->parameters(), 813598);
  EXPECT_EQ(spec->state_bytes(), 4 * 4 * (32 * 32 + 32) * 4);
}

TEST(Spec, ReadsASymbolModelWithDefaults) {
  const Result<Spec> spec = parse_spec(kSymbols, kFile);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->name, "tiny.lm_2-a");
  const LinearTransformerSpec& sizes = sizes_of(*spec);
  EXPECT_EQ(sizes.attention_eps, 1e-6F);
  EXPECT_EQ(sizes.norm_eps, 1e-5F);
  EXPECT_TRUE(sizes.final_norm);
  EXPECT_EQ(sizes.activation, Activation::kGelu);
  EXPECT_EQ(sizes.combine, Combine::kAdd);
  EXPECT_EQ(sizes.position_width(), 20);
  EXPECT_EQ(spec->positions, 0);
  EXPECT_EQ(spec->max_length(), 0);
  EXPECT_EQ(spec->head.kind, HeadKind::kCategorical);
  EXPECT_EQ(spec->head.width(), 3);
  EXPECT_FALSE(spec->begin.has_value());
  EXPECT_FALSE(spec->image.has_value());
  EXPECT_EQ(spec->symbols, (std::vector<std::string>{"a", "é", "\n"}));
  EXPECT_EQ(spec->state_bytes(), 2 * 3 * (7 * 5 + 7) * 4);
}

TEST(Spec, ReadsModelsOfText) {
  const Result<Spec> bytes = parse_spec(kText, kFile);
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  EXPECT_EQ(bytes->text, TextKind::kBytes);
  EXPECT_EQ(parse_spec(kSymbols, kFile)->text, TextKind::kNone);
  Spec spec = *bytes;
  spec.text = TextKind::kTokenizer;
  spec.vocabulary = spec.head.values = 50257;
  const Result<Spec> tokens = parse_spec(spec_to_json(spec), kFile);
  ASSERT_TRUE(tokens.ok()) << tokens.status().message();
  EXPECT_EQ(tokens->text, TextKind::kTokenizer);
}

// One change to a valid config, and the texts that the error must contain.
struct Fault {
  const char* name;
  const char* base;
  const char* pointer;             // RFC 6901
  const char* value;               // JSON; "": the key is removed
  std::vector<const char*> wants;  // in addition to the file

  friend void PrintTo(const Fault& of, std::ostream* out) { *out << of.name; }
};

std::string with_change(const Fault& fault) {
  json tree = json::parse(fault.base);
  const json::json_pointer pointer(fault.pointer);
  if (*fault.value == '\0') {
    tree.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    tree[pointer] = json::parse(fault.value);
  }
  return tree.dump();
}

class SpecFault : public testing::TestWithParam<Fault> {};

TEST_P(SpecFault, NamesKeyExpectedAndFound) {
  const Result<Spec> spec = parse_spec(with_change(GetParam()), kFile);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(spec.status().message(), testing::StartsWith("some/config.json: "));
  for (const char* want : GetParam().wants) {
    EXPECT_THAT(spec.status().message(), HasSubstr(want));
  }
}

std::string fault_name(const testing::TestParamInfo<Fault>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Root, SpecFault,
    testing::Values(
        Fault{"NoVersion",
              kImage,
              "/runnel_bundle",
              "",
              {"runnel_bundle: expected an integer from 1 to 1, found no such key"}},
        Fault{"LaterVersion",
              kImage,
              "/runnel_bundle",
              "2",
              {"runnel_bundle: expected", "from 1 to 1, found 2"}},
        Fault{"VersionIsText",
              kImage,
              "/runnel_bundle",
              "\"1\"",
              {"runnel_bundle: expected", "found '1'"}},
        Fault{"UnknownKey",
              kImage,
              "/colour",
              "1",
              {"the file: expected one of the keys", "symbols", "found 'colour'"}},
        Fault{"NoName",
              kImage,
              "/name",
              "",
              {"name: expected 1 to 128 characters", "found no such key"}},
        Fault{"EmptyName",
              kImage,
              "/name",
              "\"\"",
              {"name: expected 1 to 128 characters", "found ''"}},
        Fault{"NameWithSpace", kImage, "/name", "\"a b\"", {"name: expected", "found 'a b'"}},
        Fault{"NameWithSlash", kImage, "/name", "\"a/b\"", {"name: expected", "found 'a/b'"}},
        Fault{"NameWithControl", kImage, "/name", "\"a\\u0000b\\u001b\"", {"found 'a\\x00b\\x1b'"}},
        Fault{"NameIsNumber", kImage, "/name", "7", {"name: expected", "found 7"}},
        Fault{"NoModel", kImage, "/model", "", {"model: expected an object, found no such key"}},
        Fault{"ModelIsArray",
              kImage,
              "/model",
              "[1,2]",
              {"model: expected an object, found an array of 2"}},
        Fault{"ModelIsNull", kImage, "/model", "null", {"model: expected an object, found null"}},
        Fault{"NoValues", kImage, "/values", "", {"values: expected an integer from 1 to 1048576"}},
        Fault{"ZeroValues", kSymbols, "/values", "0", {"values: expected", "found 0"}},
        Fault{"ManyValues", kSymbols, "/values", "1048577", {"values: expected", "found 1048577"}},
        Fault{"MixtureOf255",
              kImage,
              "/values",
              "255",
              {"values: expected 256", "mixture of logistics", "found 255"}},
        Fault{
            "ImageOf257",
            kSymbols,
            "",
            R"({"runnel_bundle":1,"name":"x","model":{"layers":1,"width":2,"heads":1,"query_size":1,"value_size":1,"ffn":1,"attention":{"feature_map":"elu"},"norm":{"kind":"layer","placement":"post"},"activation":"relu","embedding":{"combine":"add","value_width":2},"position":{"kind":"none","length":3},"head":{"kind":"categorical"}},"values":257,"image":{"height":2,"width":2,"channels":1}})",
            {"values: expected at most 256", "found 257"}}),
    fault_name);

INSTANTIATE_TEST_SUITE_P(
    Sizes, SpecFault,
    testing::Values(
        Fault{"ZeroLayers",
              kImage,
              "/model/layers",
              "0",
              {"model.layers: expected an integer from 1 to 256, found 0"}},
        Fault{"NegativeLayers",
              kImage,
              "/model/layers",
              "-4",
              {"model.layers: expected", "found -4"}},
        Fault{
            "ManyLayers", kImage, "/model/layers", "257", {"model.layers: expected", "found 257"}},
        Fault{"FractionalLayers",
              kImage,
              "/model/layers",
              "4.0",
              {"model.layers: expected an integer", "found 4.0"}},
        Fault{"LayersAbove64Bits",
              kImage,
              "/model/layers",
              "18446744073709551617",
              {"model.layers: expected an integer", "found 1.8446744073709552e+19"}},
        Fault{"LayersAbove63Bits",
              kImage,
              "/model/layers",
              "18446744073709551615",
              {"model.layers: expected an integer", "found 18446744073709551615"}},
        Fault{"LayersIsBool",
              kImage,
              "/model/layers",
              "true",
              {"model.layers: expected an integer", "found true"}},
        Fault{"NoWidth",
              kImage,
              "/model/width",
              "",
              {"model.width: expected an integer from 1 to 16384, found no such key"}},
        Fault{
            "WideModel", kImage, "/model/width", "16385", {"model.width: expected", "found 16385"}},
        Fault{"ZeroHeads", kImage, "/model/heads", "0", {"model.heads: expected", "found 0"}},
        Fault{"ZeroQuerySize",
              kImage,
              "/model/query_size",
              "0",
              {"model.query_size: expected", "found 0"}},
        Fault{"ZeroValueSize",
              kImage,
              "/model/value_size",
              "0",
              {"model.value_size: expected", "found 0"}},
        Fault{"ZeroFfn", kImage, "/model/ffn", "0", {"model.ffn: expected", "found 0"}},
        Fault{"QueriesTooWide",
              kImage,
              "/model/query_size",
              "4097",
              {"model.query_size: expected model.heads times this to be at most 16384, found 4 * "
               "4097 = 16388"}},
        Fault{"ValuesTooWide",
              kImage,
              "/model/value_size",
              "16384",
              {"model.value_size: expected model.heads times this to be at most 16384, found 4 * "
               "16384 = 65536"}},
        Fault{"ValueWidthIsAll",
              kImage,
              "/model/embedding/value_width",
              "128",
              {"model.embedding.value_width: expected less than 128", "found 128"}},
        Fault{"ValueWidthTooSmall",
              kSymbols,
              "/model/embedding/value_width",
              "19",
              {"model.embedding.value_width: expected 20", "added", "found 19"}},
        Fault{"NoPositionConcat",
              kImage,
              "/model/position",
              R"({"kind": "none", "length": 783})",
              {"model.embedding.value_width: expected 128", "alone", "found 64"}}),
    fault_name);

INSTANTIATE_TEST_SUITE_P(
    Choices, SpecFault,
    testing::Values(
        Fault{"UnknownModelKey",
              kImage,
              "/model/dropout",
              "0.1",
              {"model: expected one of the keys family, layers, width", "found 'dropout'"}},
        Fault{"UnknownAttentionKey",
              kImage,
              "/model/attention/dropout",
              "1",
              {"model.attention: expected one of the keys kind, feature_map, eps, features, "
               "temperature, smoothing, kernel, normalize, gate, scale, found 'dropout'"}},
        Fault{"AttentionKind",
              kImage,
              "/model/attention/kind",
              "\"full\"",
              {"model.attention.kind: expected 'linear' or 'softmax', found 'full'"}},
        Fault{"ScaleOfLinear",
              kImage,
              "/model/attention/scale",
              "1",
              {"model.attention.scale: expected no such key with the kind 'linear', found 1"}},
        Fault{"EpsOfSoftmax",
              kImage,
              "/model/attention",
              R"({"kind": "softmax", "eps": 0.5})",
              {"model.attention.eps: expected no such key with the kind 'softmax', found 0.5"}},
        Fault{"FeatureMapOfSoftmax",
              kImage,
              "/model/attention",
              R"({"kind": "softmax", "feature_map": "elu"})",
              {"model.attention.feature_map: expected no such key with the kind 'softmax'"}},
        Fault{"ZeroScale",
              kImage,
              "/model/attention",
              R"({"kind": "softmax", "scale": 0})",
              {"model.attention.scale: expected a number above 0", "found 0"}},
        Fault{"EndlessSoftmax",
              kSymbols,
              "/model/attention",
              R"({"kind": "softmax"})",
              {"model.position.length: expected an integer from 1 to 16777216, found no such "
               "key"}},
        Fault{"UnknownNormKey",
              kImage,
              "/model/norm/x",
              "1",
              {"model.norm: expected one of the keys", "found 'x'"}},
        Fault{"UnknownEmbeddingKey",
              kImage,
              "/model/embedding/x",
              "1",
              {"model.embedding: expected one of the keys", "found 'x'"}},
        Fault{"UnknownPositionKey",
              kImage,
              "/model/position/x",
              "1",
              {"model.position: expected one of the keys", "found 'x'"}},
        Fault{"UnknownHeadKey",
              kImage,
              "/model/head/x",
              "1",
              {"model.head: expected one of the keys", "found 'x'"}},
        Fault{"FeatureMap",
              kImage,
              "/model/attention/feature_map",
              "\"softmax\"",
              {"model.attention.feature_map: expected 'elu' or 'relu' or 'favor' or 'fourier' or "
               "'smoothed_fourier' or 'generalized', found 'softmax'"}},
        Fault{"FeaturesMissing",
              kImage,
              "/model/attention",
              R"({"feature_map": "favor"})",
              {"model.attention.features: expected an integer from 2 to 16384, found no such key"}},
        Fault{"OneFeature",
              kImage,
              "/model/attention",
              R"({"feature_map": "fourier", "features": 1})",
              {"model.attention.features: expected an integer from 2 to 16384, found 1"}},
        Fault{"TwoSmoothedFeatures",
              kImage,
              "/model/attention",
              R"({"feature_map": "smoothed_fourier", "features": 2})",
              {"model.attention.features: expected an integer from 3 to 16384, found 2"}},
        Fault{"ManyFeatures",
              kImage,
              "/model/attention",
              R"({"feature_map": "generalized", "features": 4097, "kernel": "relu"})",
              {"model.attention.features: expected model.heads times this to be at most 16384, "
               "found 4 * 4097 = 16388"}},
        Fault{"FeaturesOfElu",
              kImage,
              "/model/attention/features",
              "32",
              {"model.attention.features: expected no such key with the feature map 'elu'",
               "found 32"}},
        Fault{"NormalizedElu",
              kImage,
              "/model/attention/normalize",
              "true",
              {"model.attention.normalize: expected no such key with the feature map 'elu'"}},
        Fault{"SmoothingOfFavor",
              kImage,
              "/model/attention",
              R"({"feature_map": "favor", "features": 8, "smoothing": 1})",
              {"model.attention.smoothing: expected no such key with the feature map 'favor'"}},
        Fault{"KernelOfFavor",
              kImage,
              "/model/attention",
              R"({"feature_map": "favor", "features": 8, "kernel": "relu"})",
              {"model.attention.kernel: expected no such key with the feature map 'favor'"}},
        Fault{"NoKernel",
              kImage,
              "/model/attention",
              R"({"feature_map": "generalized", "features": 8})",
              {"model.attention.kernel: expected 'relu' or 'gelu', found no such key"}},
        Fault{"ZeroTemperature",
              kImage,
              "/model/attention",
              R"({"feature_map": "favor", "features": 8, "temperature": 0})",
              {"model.attention.temperature: expected a number above 0", "at most 1000000",
               "found 0"}},
        Fault{"HugeSmoothing",
              kImage,
              "/model/attention",
              R"({"feature_map": "smoothed_fourier", "features": 8, "smoothing": 1e39})",
              {"model.attention.smoothing: expected a number above 0"}},
        Fault{"GateIsNoWord",
              kImage,
              "/model/attention/gate",
              "\"sigmoid\"",
              {"model.attention.gate: expected true or false, found 'sigmoid'"}},
        Fault{"Stabilize",
              kImage,
              "/model/attention",
              R"({"feature_map": "favor", "features": 8, "stabilize": true})",
              {"model.attention.stabilize: expected no such key", "whole sequence", "found true"}},
        Fault{"ZeroEps",
              kImage,
              "/model/attention/eps",
              "0",
              {"model.attention.eps: expected a number above 0", "found 0"}},
        Fault{"EpsIsZeroAsFp32",
              kImage,
              "/model/attention/eps",
              "1e-60",
              {"model.attention.eps: expected", "found 1e-60"}},
        Fault{"LargeEps",
              kImage,
              "/model/norm/eps",
              "1.5",
              {"model.norm.eps: expected", "found 1.5"}},
        Fault{"EpsIsText",
              kImage,
              "/model/norm/eps",
              "\"1e-5\"",
              {"model.norm.eps: expected", "found '1e-5'"}},
        Fault{"NormKind",
              kImage,
              "/model/norm/kind",
              "\"rms\"",
              {"model.norm.kind: expected 'layer', found 'rms'"}},
        Fault{"NormPlacement",
              kImage,
              "/model/norm/placement",
              "\"pre\"",
              {"model.norm.placement: expected 'post', found 'pre'"}},
        Fault{"FinalIsNumber",
              kImage,
              "/model/norm/final",
              "1",
              {"model.norm.final: expected true or false, found 1"}},
        Fault{"Activation",
              kImage,
              "/model/activation",
              "\"silu\"",
              {"model.activation: expected 'relu' or 'gelu', found 'silu'"}},
        Fault{"ActivationIsNull",
              kImage,
              "/model/activation",
              "null",
              {"model.activation: expected", "found null"}},
        Fault{"Combine",
              kImage,
              "/model/embedding/combine",
              "\"sum\"",
              {"model.embedding.combine: expected 'concat' or 'add', found 'sum'"}},
        Fault{"PositionKind",
              kImage,
              "/model/position/kind",
              "\"rotary\"",
              {"model.position.kind: expected 'table' or 'sinusoidal' or 'none', found 'rotary'"}},
        Fault{
            "TableWithoutLength",
            kImage,
            "/model/position/length",
            "",
            {"model.position.length: expected an integer from 1 to 2147483647, found no such key"}},
        Fault{"TableTooLong",
              kImage,
              "/model/position/length",
              "2147483648",
              {"model.position.length: expected", "found 2147483648"}},
        Fault{"ZeroLength",
              kSymbols,
              "/model/position/length",
              "0",
              {"model.position.length: expected an integer from 1 to 2147483648, found 0"}},
        Fault{
            "HeadKind",
            kImage,
            "/model/head/kind",
            "\"softmax\"",
            {"model.head.kind: expected 'categorical' or 'mixture_of_logistics', found 'softmax'"}},
        Fault{"NoComponents",
              kImage,
              "/model/head/components",
              "",
              {"model.head.components: expected an integer from 1 to 256, found no such key"}},
        Fault{"ManyComponents",
              kImage,
              "/model/head/components",
              "257",
              {"model.head.components: expected", "found 257"}},
        Fault{"CategoricalComponents",
              kSymbols,
              "/model/head/components",
              "3",
              {"model.head.components: expected no such key", "found 3"}}),
    fault_name);

INSTANTIATE_TEST_SUITE_P(
    Values, SpecFault,
    testing::Values(
        Fault{"BeginIsNumber", kImage, "/begin", "0", {"begin: expected an object, found 0"}},
        Fault{"BeginIsEmpty",
              kImage,
              "/begin",
              "{}",
              {"begin.value: expected an integer from 0 to 255, found no such key"}},
        Fault{"BeginOutside",
              kImage,
              "/begin/value",
              "256",
              {"begin.value: expected an integer from 0 to 255, found 256"}},
        Fault{"BeginNegative", kImage, "/begin/value", "-1", {"begin.value: expected", "found -1"}},
        Fault{"BeginBoth",
              kSymbols,
              "/begin",
              R"({"value": 0, "histogram": [1, 1, 1]})",
              {"begin: expected either value or histogram, found both"}},
        Fault{"BeginUnknown",
              kSymbols,
              "/begin",
              R"({"token": 0})",
              {"begin: expected one of the keys value, histogram, found 'token'"}},
        Fault{"HistogramLength",
              kSymbols,
              "/begin",
              R"({"histogram": [1, 1]})",
              {"begin.histogram: expected an array of 3 numbers", "found an array of 2"}},
        Fault{"HistogramNegative",
              kSymbols,
              "/begin",
              R"({"histogram": [1, -0.5, 1]})",
              {"begin.histogram[1]: expected a number from 0", "found -0.5"}},
        Fault{"HistogramText",
              kSymbols,
              "/begin",
              R"({"histogram": [1, 1, "1"]})",
              {"begin.histogram[2]: expected", "found '1'"}},
        Fault{"HistogramTooLarge",
              kSymbols,
              "/begin",
              R"({"histogram": [1e39, 1, 1]})",
              {"begin.histogram[0]: expected", "found 1e+39"}},
        Fault{"HistogramZero",
              kSymbols,
              "/begin",
              R"({"histogram": [0, 0, 0]})",
              {"begin.histogram: expected at least one number above 0", "found a sum of 0"}},
        Fault{"SymbolsIsText",
              kSymbols,
              "/symbols",
              "\"abc\"",
              {"symbols: expected an array of 3 strings", "found 'abc'"}},
        Fault{"FewSymbols",
              kSymbols,
              "/symbols",
              R"(["a"])",
              {"symbols: expected an array of 3 strings", "found an array of 1"}},
        Fault{"EmptySymbol",
              kSymbols,
              "/symbols/1",
              "\"\"",
              {"symbols[1]: expected a string of 1 to 64 bytes, found ''"}},
        Fault{"SymbolIsNumber",
              kSymbols,
              "/symbols/2",
              "2",
              {"symbols[2]: expected a string", "found 2"}},
        Fault{"LongSymbol",
              kSymbols,
              "/symbols/0",
              "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
              {"symbols[0]: expected a string of 1 to 64 bytes"}},
        Fault{"SameSymbol",
              kSymbols,
              "/symbols/2",
              "\"a\"",
              {"symbols[2]: expected a symbol of its own", "found 'a' a second time"}},
        Fault{"StrangeText",
              kText,
              "/text",
              "\"utf-8\"",
              {"text: expected 'bytes' or 'tokenizer', found 'utf-8'"}},
        Fault{"TextOfFewBytes",
              kText,
              "/values",
              "255",
              {"values: expected 256, as values are the bytes of text, found 255"}},
        Fault{"TextAndSymbols",
              kSymbols,
              "/text",
              "\"tokenizer\"",
              {"symbols: expected no such key together with text, found one"}},
        Fault{"TextAndImage",
              kImage,
              "/text",
              "\"bytes\"",
              {"image: expected no such key together with text"}},
        Fault{"TextOfAMixture",
              kText,
              "/model/head",
              R"({"kind": "mixture_of_logistics", "components": 2})",
              {"model.head.kind: expected 'categorical', as values are text, found 'mixture_of_"}},
        Fault{"NoSymbols", kImage, "/symbols", "[]", {"symbols: expected an array of 256"}},
        Fault{"ImageHeight",
              kImage,
              "/image/height",
              "0",
              {"image.height: expected an integer from 1 to 16384, found 0"}},
        Fault{"ImageWidth",
              kImage,
              "/image/width",
              "16385",
              {"image.width: expected", "found 16385"}},
        Fault{"TwoChannels",
              kImage,
              "/image/channels",
              "2",
              {"image.channels: expected 1 (grey) or 3", "found 2"}},
        Fault{"FourChannels",
              kImage,
              "/image/channels",
              "4",
              {"image.channels: expected", "found 4"}},
        Fault{"ImageUnknown",
              kImage,
              "/image/depth",
              "1",
              {"image: expected one of the keys height, width, channels, found 'depth'"}},
        Fault{"ImageTooLarge",
              kImage,
              "/image/height",
              "29",
              {"model.position.length: expected 811 (image.height * width * channels - 1), found "
               "783"}},
        Fault{"ImageEndless",
              kImage,
              "/model/position",
              R"({"kind": "sinusoidal"})",
              {"model.position.length: expected 783", "found no such key"}}),
    fault_name);

TEST(Spec, RefusesSymbolsTogetherWithAnImage) {
  json tree = json::parse(kImage);
  for (int value = 0; value < 256; ++value) tree["symbols"].push_back(std::to_string(value));
  const Result<Spec> spec = parse_spec(tree.dump(), kFile);
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(spec.status().message(),
              HasSubstr("symbols: expected no such key together with image"));
}

// Text that is not valid JSON for us, and the texts that the error must contain.
struct BadText {
  const char* name;
  std::string text;
  std::vector<const char*> wants;
};

TEST(Spec, RefusesTextThatIsNoProperJson) {
  const std::string deep(100, '[');
  const std::string image = kImage;
  const std::vector<BadText> cases = {
      {"empty", "", {"not valid JSON", "line 1, column 1"}},
      {"a number", "7", {"the file: expected an object, found 7"}},
      {"cut short", image.substr(0, 40), {"not valid JSON", "line 2"}},
      {"twice", image + image, {"not valid JSON", "expected end of input"}},
      {"trailing comma", R"({"values": 1,})", {"not valid JSON", "column 14"}},
      {"comment", "{} // so", {"not valid JSON"}},
      {"not a number", R"({"values": NaN})", {"not valid JSON"}},
      {"large number", R"({"values": 1e999})", {"not valid JSON", "1e999"}},
      {"not UTF-8", "{\"name\": \"\xff\"}", {"not valid JSON", "UTF-8"}},
      {"half a surrogate", R"({"name": "\ud800"})", {"not valid JSON", "surrogate"}},
      {"zero byte", image + std::string(1, '\0') + "more", {"zero byte at offset", "UTF-8 text"}},
      {"deep", "{\"name\": " + deep, {"nested deeper than 8 levels"}},
      {"key twice", R"({"values": 1, "name": "a", "values": 2})", {"key 'values' appears twice"}},
      {"inner key twice",
       R"({"model": {"head": {"kind": 1, "kind": 1}}})",
       {"key 'model.head.kind' appears twice"}},
      {"key in outermost array twice", R"([{"a": 1, "a": 1}])", {"key '[0].a' appears twice"}},
      {"key in array twice",
       R"({"symbols": [1, [{}, {"a": 1, "a": 1}]]})",
       {"key 'symbols[1][1].a' appears twice"}},
  };
  for (const BadText& bad : cases) {
    SCOPED_TRACE(bad.name);
    const Result<Spec> spec = parse_spec(bad.text, kFile);
    ASSERT_FALSE(spec.ok());
    EXPECT_EQ(spec.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(spec.status().message(), testing::StartsWith("some/config.json: "));
    EXPECT_LT(spec.status().message().size(), 600U);
    for (const char* want : bad.wants) EXPECT_THAT(spec.status().message(), HasSubstr(want));
  }
}

TEST(Spec, RefusesTextAboveTheLimits) {
  const Result<Spec> large = parse_spec(std::string(kMaxConfigBytes + 1, ' '), kFile);
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(large.status().message(),
              HasSubstr("16777217 bytes of JSON; expected at most 16777216"));
  std::string many = "{\"symbols\": [0";
  for (int i = 0; i < (1 << 22); ++i) many += ",0";
  const Result<Spec> full = parse_spec(many + "]}", kFile);
  ASSERT_FALSE(full.ok());
  EXPECT_THAT(full.status().message(), HasSubstr("more than 4194304 JSON values"));
}

TEST(Spec, LargestSizesDoNotOverflow) {
  json tree = json::parse(kSymbols);
  tree["model"]["layers"] = kMaxLayers;
  tree["model"]["width"] = kMaxWidth;
  tree["model"]["embedding"]["value_width"] = kMaxWidth;
  tree["model"]["ffn"] = kMaxWidth;
  tree["model"]["heads"] = 1;
  tree["model"]["query_size"] = kMaxWidth;
  tree["model"]["value_size"] = kMaxWidth;
  tree["model"]["position"]["length"] = kMaxPositions;
  tree["values"] = kMaxVocabulary;
  tree.erase("symbols");
  const Result<Spec> spec = parse_spec(tree.dump(), kFile);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->state_bytes(), int64_t{256} * (int64_t{16384} * 16384 + 16384) * 4);
  EXPECT_EQ(spec->max_length(), kMaxPositions + 1);
  EXPECT_GT(spec->parameters(), int64_t{256} * 6 * 16384 * 16384);
}

TEST(Spec, HistogramSumsToOne) {
  json tree = json::parse(kSymbols);
  tree["begin"]["histogram"] = {3, 0, 1};
  const Result<Spec> spec = parse_spec(tree.dump(), kFile);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->begin->histogram, (std::vector<float>{0.75F, 0.0F, 0.25F}));
}

void expect_same(const Spec& a, const Spec& b) {
  const LinearTransformerSpec& of_a = sizes_of(a);
  const LinearTransformerSpec& of_b = sizes_of(b);
  EXPECT_EQ(spec_to_json(a), spec_to_json(b));
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(of_a.attention_eps, of_b.attention_eps);
  EXPECT_EQ(of_a.norm_eps, of_b.norm_eps);
  EXPECT_EQ(a.symbols, b.symbols);
  EXPECT_EQ(a.state_bytes(), b.state_bytes());
  EXPECT_EQ(a.parameters(), b.parameters());
  EXPECT_EQ(of_a.features.temperature, of_b.features.temperature);
  EXPECT_EQ(of_a.features.smoothing, of_b.features.smoothing);
  EXPECT_EQ(of_a.features.kernel, of_b.features.kernel);
  EXPECT_EQ(of_a.softmax_scale, of_b.softmax_scale);
  ASSERT_EQ(a.begin.has_value(), b.begin.has_value());
  if (!a.begin.has_value()) return;
  EXPECT_EQ(a.begin->value, b.begin->value);
  EXPECT_EQ(a.begin->histogram, b.begin->histogram);
}

TEST(Spec, WritesAndReadsTheSameSpec) {
  Spec odd = small_symbol_spec();
  sizes_of(odd).attention_eps = std::nextafterf(3e-7F, 1.0F);
  sizes_of(odd).norm_eps = 0x1p-149F;  // the smallest float
  sizes_of(odd).final_norm = false;
  odd.symbols[3] = std::string("\0\x01\"\\\x7f\xe2\x82\xac", 8);
  std::vector<float> weights(11);
  std::iota(weights.begin(), weights.end(), 0.1F);
  double sum = 0.0;
  for (const float weight : weights) sum += double{weight};
  for (float& weight : weights) weight = static_cast<float>(weight / sum);
  odd.begin->histogram = weights;
  Spec generalized = small_gated_spec();
  LinearTransformerSpec& of_kernel = sizes_of(generalized);
  of_kernel.feature_map = of_kernel.features.map = FeatureMap::kGeneralized;
  of_kernel.features.smoothing = 1.0F;
  of_kernel.features.kernel = Activation::kGelu;
  for (const Spec& spec : {small_image_spec(), small_symbol_spec(), odd, small_gated_spec(),
                           generalized, small_softmax_spec()}) {
    const Result<Spec> back = parse_spec(spec_to_json(spec), kFile);
    ASSERT_TRUE(back.ok()) << back.status().message();
    expect_same(spec, *back);
  }
}

TEST(Spec, RandomFeaturesHaveTheTemperatureOfFastTransformers) {
  json tree = json::parse(kSymbols);
  tree["model"]["attention"] = {{"feature_map", "smoothed_fourier"}, {"features", 12}};
  const Result<Spec> smoothed = parse_spec(tree.dump(), kFile);
  ASSERT_TRUE(smoothed.ok()) << smoothed.status().message();
  const LinearTransformerSpec& sizes = sizes_of(*smoothed);
  EXPECT_FLOAT_EQ(sizes.features.temperature, 1 / std::sqrt(7.0F));
  EXPECT_EQ(sizes.features.smoothing, 1.0F);
  EXPECT_EQ(sizes.feature_size(), 11);
  EXPECT_EQ(smoothed->state_bytes(), 2 * 3 * (11 * 5 + 11) * 4);
  EXPECT_FALSE(sizes.gate || sizes.normalize);
  tree["model"]["attention"] = {
      {"feature_map", "generalized"}, {"features", 12}, {"kernel", "gelu"}, {"gate", true}};
  const Result<Spec> generalized = parse_spec(tree.dump(), kFile);
  ASSERT_TRUE(generalized.ok()) << generalized.status().message();
  const LinearTransformerSpec& of_kernel = sizes_of(*generalized);
  EXPECT_EQ(of_kernel.features.temperature, 1.0F);
  EXPECT_EQ(of_kernel.features.kernel, Activation::kGelu);
  EXPECT_EQ(of_kernel.feature_size(), 12);
  EXPECT_TRUE(of_kernel.gate);
}

TEST(Spec, SoftmaxAttentionHasACacheForAllPositions) {
  json tree = json::parse(kImage);
  tree["model"]["attention"] = {{"kind", "softmax"}};
  const Result<Spec> spec = parse_spec(tree.dump(), kFile);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_TRUE(sizes_of(*spec).softmax);
  EXPECT_FLOAT_EQ(sizes_of(*spec).softmax_scale, 1 / std::sqrt(32.0F));
  EXPECT_EQ(spec->position_bytes(), 4 * 4 * (32 + 32) * 4);  // layers, heads, a key and a value
  EXPECT_EQ(spec->state_bytes(), 13 * 64 * spec->position_bytes());
  EXPECT_EQ(spec->parameters(), parse_spec(kImage, kFile)->parameters());
  tree["model"]["attention"] = {{"kind", "linear"}, {"feature_map", "relu"}};
  const Result<Spec> linear = parse_spec(tree.dump(), kFile);
  ASSERT_TRUE(linear.ok()) << linear.status().message();
  EXPECT_EQ(linear->position_bytes(), 0);
}

TEST(Spec, ParametersAreTheTrainedTensors) {
  for (const Spec& spec : {small_image_spec(), small_symbol_spec(), small_gated_spec()}) {
    int64_t expected = 0;
    for (const ExpectedTensor& tensor : expected_tensors(spec)) {
      // Computed or drawn, not trained.
      if (tensor.name == "pos_embedding.pe" || tensor.name.ends_with(".omega")) continue;
      expected += std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1},
                                  std::multiplies<>());
    }
    EXPECT_EQ(spec.parameters(), expected);
  }
}

// The fenced ```json blocks of docs/bundle.md.
std::vector<std::string> documented_examples(std::string& page) {
  std::ifstream file("docs/bundle.md");
  std::stringstream text;
  text << file.rdbuf();
  page = text.str();
  std::vector<std::string> blocks;
  const std::string fence = "```json\n";
  for (size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at + 1)) {
    const size_t begin = at + fence.size();
    blocks.push_back(page.substr(begin, page.find("```", begin) - begin));
  }
  return blocks;
}

TEST(Spec, DocumentedExamplesAreValid) {
  std::string page;
  const std::vector<std::string> blocks = documented_examples(page);
  ASSERT_GE(blocks.size(), 2U) << "docs/bundle.md has an example of an image and of a symbol model";
  for (const std::string& block : blocks) {
    const Result<Spec> spec = parse_spec(block, "docs/bundle.md");
    EXPECT_TRUE(spec.ok()) << spec.status().message();
  }
}

void collect_keys(const json& tree, const std::string& path, std::set<std::string>& keys) {
  for (const auto& [key, value] : tree.items()) {
    keys.insert(path + key);
    if (value.is_object()) collect_keys(value, std::string(path).append(key) += '.', keys);
  }
}

TEST(Spec, ReadsTheValuesThatEndTexts) {
  json config = json::parse(kSymbols);
  config["eos"] = {2, 0, 2};
  const Result<Spec> spec = parse_spec(config.dump(), kFile);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->eos, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(parse_spec(spec_to_json(*spec), kFile)->eos, spec->eos);
  for (const auto& [eos, message] :
       {std::pair(json(2), "eos: expected an array of 1 to 64 values, found 2"),
        std::pair(json::array(), "eos: expected an array of 1 to 64 values, found an array of 0"),
        std::pair(json{1, 3}, "eos[1]: expected a value from 0 to 2, found 3"),
        std::pair(json{-1}, "eos[0]: expected a value from 0 to 2, found -1")}) {
    config["eos"] = eos;
    EXPECT_THAT(parse_spec(config.dump(), kFile).status().message(), HasSubstr(message));
  }
}

TEST(Spec, EveryKeyIsDocumented) {
  std::string page;
  documented_examples(page);
  std::set<std::string> keys;
  collect_keys(json::parse(spec_to_json(small_image_spec())), "", keys);
  collect_keys(json::parse(spec_to_json(small_symbol_spec())), "", keys);
  collect_keys(json::parse(spec_to_json(small_gated_spec())), "", keys);
  for (const Spec& spec : small_family_specs()) {
    collect_keys(json::parse(spec_to_json(spec)), "", keys);
  }
  keys.insert("model.attention.kernel");
  keys.insert("model.key_eps");
  keys.insert("eos");
  EXPECT_GE(keys.size(), 34U + 26);
  for (const std::string& key : keys) EXPECT_THAT(page, HasSubstr("`" + key + "`"));
}

}  // namespace
}  // namespace runnel
