#include "models/bundle/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include "base/limits.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using testing::HasSubstr;

// Specs that together have every choice that changes a tensor.
std::vector<Spec> all_kinds() {
  Spec plain = small_symbol_spec();  // nothing optional
  sizes_of(plain).position = PositionKind::kNone;
  sizes_of(plain).final_norm = false;
  plain.symbols.clear();
  plain.begin.reset();
  Spec added = small_symbol_spec();  // an added table
  sizes_of(added).position = PositionKind::kTable;
  added.positions = 9;
  Spec odd = small_image_spec();  // every size differs
  sizes_of(odd).query_size = 5;
  sizes_of(odd).value_size = 7;
  sizes_of(odd).value_width = 23;
  std::vector<Spec> kinds = {
      small_image_spec(), small_text_spec(), small_gated_spec(), plain, added, odd};
  for (const Spec& spec : small_family_specs()) kinds.push_back(spec);
  return kinds;
}

TEST(Bundle, LoadsAWrittenBundle) {
  for (const Spec& spec : all_kinds()) {
    for (const StoredType type : {StoredType::kF32, StoredType::kF16, StoredType::kBF16}) {
      const TempDir directory;
      const TensorMap tensors = random_tensors(spec, 5);
      write_bundle(directory.path(), spec, tensors, type);
      const Result<Bundle> bundle = load_bundle(directory.path());
      ASSERT_TRUE(bundle.ok()) << bundle.status().message();
      EXPECT_EQ(bundle->directory, directory.path());
      EXPECT_EQ(spec_to_json(bundle->spec), spec_to_json(spec));
      EXPECT_EQ(bundle->digest()->size(), 64U);
      for (const ExpectedTensor& tensor : expected_tensors(spec)) {
        ASSERT_EQ(bundle->tensors.contains(tensor.name), tensor.read) << tensor.name;
        if (!tensor.read) continue;
        std::vector<float> kept = tensors.at(tensor.name);
        for (float& value : kept) value = stored(value, type);
        EXPECT_EQ(widened(bundle->tensors.at(tensor.name)), kept) << tensor.name;
      }
    }
  }
}

TEST(Bundle, TensorsHaveTheNamesOfFastTransformers) {
  std::map<std::string, std::vector<int64_t>> shapes;
  Spec spec = small_image_spec();
  sizes_of(spec).query_size = 5;
  sizes_of(spec).value_size = 7;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    EXPECT_TRUE(shapes.emplace(tensor.name, tensor.shape).second) << tensor.name;
  }
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shapes.size(), 1U + 1 + 2 * 16 + 2 + 2);
  EXPECT_EQ(shapes["value_embedding.weight"], (Shape{256, 12}));
  EXPECT_EQ(shapes["pos_embedding.pe"], (Shape{1, 19, 12}));
  const std::string attention = "transformer.layers.1.attention.";
  EXPECT_EQ(shapes[attention + "query_projection.weight"], (Shape{15, 24}));
  EXPECT_EQ(shapes[attention + "query_projection.bias"], (Shape{15}));
  EXPECT_EQ(shapes[attention + "key_projection.weight"], (Shape{15, 24}));
  EXPECT_EQ(shapes[attention + "key_projection.bias"], (Shape{15}));
  EXPECT_EQ(shapes[attention + "value_projection.weight"], (Shape{21, 24}));
  EXPECT_EQ(shapes[attention + "value_projection.bias"], (Shape{21}));
  EXPECT_EQ(shapes[attention + "out_projection.weight"], (Shape{24, 21}));
  EXPECT_EQ(shapes[attention + "out_projection.bias"], (Shape{24}));
  EXPECT_EQ(shapes["transformer.layers.0.linear1.weight"], (Shape{40, 24}));
  EXPECT_EQ(shapes["transformer.layers.0.linear1.bias"], (Shape{40}));
  EXPECT_EQ(shapes["transformer.layers.0.linear2.weight"], (Shape{24, 40}));
  EXPECT_EQ(shapes["transformer.layers.0.linear2.bias"], (Shape{24}));
  for (const char* norm :
       {"transformer.layers.0.norm1", "transformer.layers.1.norm2", "transformer.norm"}) {
    EXPECT_EQ(shapes[std::string(norm) + ".weight"], (Shape{24}));
    EXPECT_EQ(shapes[std::string(norm) + ".bias"], (Shape{24}));
  }
  EXPECT_EQ(shapes["predictor.weight"], (Shape{9, 24}));
  EXPECT_EQ(shapes["predictor.bias"], (Shape{9}));
}

TEST(Bundle, RandomFeaturesAndGatesHaveTensorsOfTheirOwn) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ExpectedTensor& tensor : expected_tensors(small_gated_spec())) {
    shapes[tensor.name] = tensor.shape;
  }
  using Shape = std::vector<int64_t>;
  const std::string attention = "transformer.layers.1.attention.";
  EXPECT_EQ(shapes[attention + "inner_attention.feature_map.omega"], (Shape{6, 5}));
  EXPECT_EQ(shapes[attention + "inner_attention.feature_map.sigma"], (Shape{2, 6}));
  EXPECT_EQ(shapes[attention + "gate.weight"], (Shape{2, 20}));
  EXPECT_EQ(shapes[attention + "gate.bias"], (Shape{2}));
  EXPECT_EQ(small_gated_spec().state_bytes(), 2 * 2 * (11 * 5 + 11) * 4);
}

TEST(Bundle, ProjectionsThatWereNeverDrawnAreRefused) {
  const TempDir directory;
  const Spec spec = small_gated_spec();
  TensorMap tensors = random_tensors(spec, 5);
  std::vector<float>& omega =
      tensors["transformer.layers.1.attention.inner_attention.feature_map.omega"];
  std::ranges::fill(omega, 0.0F);
  write_bundle(directory.path(), spec, tensors, StoredType::kF32);
  const Result<Bundle> bundle = load_bundle(directory.path());
  ASSERT_FALSE(bundle.ok());
  EXPECT_EQ(bundle.status().code(), Code::kInvalidArgument);
  for (const char* want : {"model.safetensors: tensor 'transformer.layers.1.attention.",
                           "omega': expected random projections, found zeros only"}) {
    EXPECT_NE(bundle.status().message().find(want), std::string::npos) << bundle.status().message();
  }
}

// A change to the tensors of a valid file, and the texts that the error must contain.
struct TensorFault {
  const char* name;
  std::function<void(std::map<std::string, RawTensor>&)> change;
  std::vector<const char*> wants;  // in addition to the file
};

std::vector<TensorFault> tensor_faults() {
  using Raw = std::map<std::string, RawTensor>;
  const std::string query = "transformer.layers.1.attention.query_projection.weight";
  const std::string nan(4, '\xff');
  return {
      {"one missing",
       [](Raw& raw) { raw.erase("predictor.bias"); },
       {"1 tensor expected by config.json but missing: 'predictor.bias' [9]"}},
      {"many missing",
       [](Raw& raw) {
         std::erase_if(raw, [](auto& t) { return t.first.find("layers.1") != std::string::npos; });
       },
       {"16 tensors expected by config.json but missing: "
        "'transformer.layers.1.attention.query_projection.weight' [24, 24], ",
        ", ..."}},
      {"one unknown",
       [](Raw& raw) { raw["omega"] = {"F32", {2}, std::string(8, '\0')}; },
       {"1 tensor found that config.json does not ask for: 'omega' [2]"}},
      {"an unknown name is shown escaped",
       [](Raw& raw) { raw["\x1b[2J\n"] = {"F32", {0}, ""}; },
       {"does not ask for: '\\x1b[2J\\x0a' [0]"}},
      {"renamed",
       [](Raw& raw) {
         raw["head.bias"] = raw["predictor.bias"];
         raw.erase("predictor.bias");
       },
       {"1 tensor expected by config.json but missing: 'predictor.bias' [9]; 1 tensor found that "
        "config.json does not ask for: 'head.bias' [9]"}},
      {"one layer more",
       [](Raw& raw) {
         for (const char* part : {"weight", "bias"})
           raw["transformer.layers.2.norm1." + std::string(part)] = raw["transformer.norm.bias"];
       },
       {"2 tensors found that config.json does not ask for: 'transformer.layers.2.norm1.bias' "
        "[24], 'transformer.layers.2.norm1.weight' [24]"}},
      {"transposed",
       [](Raw& raw) { raw["transformer.layers.0.linear1.weight"].shape = {24, 40}; },
       {"tensor 'transformer.layers.0.linear1.weight': expected shape [40, 24], found [24, 40]"}},
      {"table without its first dimension",
       [](Raw& raw) { raw["pos_embedding.pe"].shape = {19, 12}; },
       {"tensor 'pos_embedding.pe': expected shape [1, 19, 12], found [19, 12]"}},
      {"other type",
       [query](Raw& raw) { raw[query].dtype = "I32"; },
       {"tensor 'transformer.layers.1.attention.query_projection.weight': dtype: expected F32, F16 "
        "or BF16, found 'I32'"}},
      {"not a number",
       [query, nan](Raw& raw) { raw[query].data.replace(4 * (24 * 2 + 3), 4, nan); },
       {"tensor 'transformer.layers.1.attention.query_projection.weight': element [2, 3] is NaN; "
        "expected a finite number"}},
      {"infinite table",
       [](Raw& raw) { raw["pos_embedding.pe"].data.replace(0, 4, std::string("\0\0\x80\x7f", 4)); },
       {"tensor 'pos_embedding.pe': element [0, 0, 0] is infinity; expected a finite number"}},
  };
}

TEST(Bundle, NamesTensorExpectedAndFound) {
  const Spec spec = small_image_spec();
  const TensorMap tensors = random_tensors(spec, 1);
  for (const TensorFault& fault : tensor_faults()) {
    SCOPED_TRACE(fault.name);
    const TempDir directory;
    write_bundle(directory.path(), spec, tensors);
    auto raw = raw_tensors(spec, tensors, StoredType::kF32);
    fault.change(raw);
    const std::string path = directory.path() + "/model.safetensors";
    write_file(path, safetensors_file(raw));
    const Result<Bundle> bundle = load_bundle(directory.path());
    const Status refusal = bundle.ok() ? bundle->check_numbers() : bundle.status();
    EXPECT_EQ(refusal.code(), Code::kInvalidArgument);
    EXPECT_THAT(refusal.message(), testing::StartsWith(path + ": "));
    for (const char* want : fault.wants) EXPECT_THAT(refusal.message(), HasSubstr(want));
  }
}

TEST(Bundle, NamesTheFileThatIsMissing) {
  const TempDir directory;
  const Spec spec = small_symbol_spec();
  const Status nothing = load_bundle(directory.path() + "/none").status();
  EXPECT_EQ(nothing.code(), Code::kNotFound);
  EXPECT_THAT(nothing.message(), HasSubstr("/none/config.json: cannot be opened"));
  EXPECT_THAT(nothing.message(), HasSubstr("a directory with config.json and model.safetensors"));
  write_bundle(directory.path(), spec, random_tensors(spec, 1));
  std::filesystem::remove(directory.path() + "/model.safetensors");
  const Status weights = load_bundle(directory.path()).status();
  EXPECT_EQ(weights.code(), Code::kNotFound);
  EXPECT_THAT(weights.message(),
              HasSubstr("/model.safetensors: no such file, nor model.safetensors.index.json"));
}

TEST(Bundle, RefusesAMissingOrTooLargeConfig) {
  const TempDir directory;
  const Spec spec = small_symbol_spec();
  write_bundle(directory.path(), spec, random_tensors(spec, 1));
  const std::string config = directory.path() + "/config.json";
  write_file(config, "{}");
  EXPECT_THAT(load_bundle(directory.path()).status().message(),
              testing::StartsWith(config + ": runnel_bundle: expected"));
  std::filesystem::resize_file(config, kMaxConfigBytes + 1);  // sparse
  EXPECT_EQ(load_bundle(directory.path()).status().message(),
            config + ": expected at most 16777216 bytes, found more");
  std::filesystem::remove(config);
  std::filesystem::create_directory(config);
  EXPECT_THAT(load_bundle(directory.path()).status().message(),
              HasSubstr("config.json: not a regular file; expected a file, found a directory"));
  std::filesystem::remove(config);
  ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
  EXPECT_THAT(load_bundle(directory.path()).status().message(), HasSubstr("found a pipe"));
}

TEST(Bundle, TextOfBytesNeedsNoFile) {
  const TempDir directory;
  const Spec spec = small_text_spec();
  write_bundle(directory.path(), spec, random_tensors(spec, 1));
  const Result<Bundle> bundle = load_bundle(directory.path());
  ASSERT_TRUE(bundle.ok()) << bundle.status().message();
  EXPECT_EQ(bundle->tokenizer->size(), 256);
  EXPECT_EQ(random_bundle(small_symbol_spec(), 1).tokenizer, nullptr);
}

TEST(Bundle, ATokenizerIsReadFromItsFileAndMustFitTheValues) {
  const TempDir directory;
  Spec spec = small_text_spec();
  spec.text = TextKind::kTokenizer;
  spec.vocabulary = spec.head.values = 901;
  write_bundle(directory.path(), spec, random_tensors(spec, 1));
  const std::string path = directory.path() + "/tokenizer.json";
  const Status none = load_bundle(directory.path()).status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("/tokenizer.json: cannot be opened"));
  EXPECT_THAT(none.message(), HasSubstr("config.json says \"text\": \"tokenizer\""));
  write_file(path, "{}");
  EXPECT_THAT(load_bundle(directory.path()).status().message(),
              testing::StartsWith(path + ": model: expected an object, found no such key"));
  std::filesystem::copy_file("tests/golden/tokenizers/gpt2/tokenizer.json", path,
                             std::filesystem::copy_options::overwrite_existing);
  const Result<Bundle> bundle = load_bundle(directory.path());
  ASSERT_TRUE(bundle.ok()) << bundle.status().message();
  EXPECT_EQ(bundle->tokenizer->size(), 901);
  std::filesystem::copy_file("tests/golden/tokenizers/words/tokenizer.json", path,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(
      load_bundle(directory.path()).status().message(),
      HasSubstr(": config.json has 901 values, its tokenizer has 905 for '\\xe2\\x98\\x83'"));
}

TEST(Bundle, TheFirstValueOfTheTokenizerMustMatchTheModel) {
  Spec spec = small_text_spec();
  spec.text = TextKind::kTokenizer;
  spec.vocabulary = spec.head.values = 1000;
  for (const int32_t value : {1, 10}) {
    const TempDir directory;
    spec.begin = Begin{.value = value, .histogram = {}};
    write_bundle(directory.path(), spec, random_tensors(spec, 1));
    std::filesystem::copy("tests/golden/tokenizers/llama/tokenizer.json", directory.path());
    const Result<Bundle> bundle = load_bundle(directory.path());
    EXPECT_EQ(bundle.ok(), value == 1) << bundle.status().message();
    if (value == 1) continue;
    EXPECT_THAT(
        bundle.status().message(),
        HasSubstr(": its tokenizer puts 1 before a text, which begin.value of config.json"));
  }
}

TEST(Bundle, DigestFollowsTheWeights) {
  const Spec spec = small_symbol_spec();
  std::set<std::string> digests;
  for (const uint64_t seed : {1, 1, 2}) {
    const TempDir directory;
    write_bundle(directory.path(), spec, random_tensors(spec, seed));
    const Result<Bundle> bundle = load_bundle(directory.path());
    ASSERT_TRUE(bundle.ok()) << bundle.status().message();
    digests.insert(*bundle->digest());
  }
  EXPECT_EQ(digests.size(), 2U);
}

TEST(Bundle, ShippedBundleLoads) {
  const Result<Bundle> bundle = load_bundle("zoo/mnist-small");
  ASSERT_TRUE(bundle.ok()) << bundle.status().message();
  EXPECT_EQ(bundle->spec.name, "mnist-small");
  EXPECT_EQ(bundle->spec.parameters(), 813598);
  EXPECT_EQ(bundle->spec.max_length(), 784);
}

TEST(Bundle, AModelOfAnotherFamilyIsRefusedBeforeItsWeightsAreRead) {
  const TempDir directory;
  std::ofstream(directory.path() + "/config.json")
      << R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12})";
  EXPECT_THAT(load_bundle(directory.path()).status().message(),
              testing::AllOf(
                  HasSubstr("/config.json: model_type: expected 'rwkv7', 'mamba2', "),
                  HasSubstr("or 'nemotron_h', the families that are implemented, found 'gpt2'")));
}

}  // namespace
}  // namespace runnel
