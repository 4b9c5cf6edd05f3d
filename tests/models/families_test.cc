// Tests the table of families: each row is complete and belongs to the alternative at its index.
#include "models/families.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/json_fields.h"
#include "models/bundle/config.h"
#include "models/bundle/published.h"
#include "models/spec.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

const std::string kFile = "config.json";

TEST(Families, ARowReadsAndWritesTheAlternativeAtItsIndex) {
  const Json config = {{"model", Json::object()}};
  for (size_t i = 0; i < families().size(); ++i) {
    const Family& family = families()[i];
    SCOPED_TRACE(family.name);
    Spec spec;
    spec.vocabulary = 1;
    Faults faults(kFile);
    family.read_config(Fields(faults, &config, "", {"model"}), faults, spec);
    EXPECT_EQ(spec.model.index(), i);
    EXPECT_EQ(&family_of(spec), &family);
    EXPECT_FALSE(family.write_config(spec).contains("family")) << "the caller writes it";
    EXPECT_FALSE(family.layers(spec).empty());
    EXPECT_FALSE(family.tensors(spec).empty());
    EXPECT_FALSE(family.describe(spec).empty());
  }
}

TEST(Families, APublishedFileIsReadAsTheAlternativeOfItsType) {
  const Json config = Json::object();
  const StoredTensors none;
  for (size_t i = 0; i < families().size(); ++i) {
    const Family& family = families()[i];
    EXPECT_EQ(family.read_published == nullptr, family.model_types.empty()) << family.name;
    if (family.read_published == nullptr) continue;
    Spec spec;
    Faults faults(kFile);
    family.read_published({{faults, &config}, none, "model.safetensors"}, spec);
    EXPECT_EQ(spec.model.index(), i) << family.name;
  }
}

// The order matters because a state file has a digest of this JSON.
TEST(Families, KeysAreWrittenInTheirOrder) {
  const auto model = [](const Spec& spec) {
    return OrderedJson::parse(spec_to_json(spec))["model"].dump();
  };
  EXPECT_EQ(model(small_mamba1_spec()),
            R"({"family":"mamba1","layers":2,"width":20,"inner":78,"state_size":7,"rank":3,)"
            R"("taps":4,"bias":true,"convolution_bias":true,"norm_eps":1e-05,"mixer_eps":1e-05,)"
            R"("tied":true,"table_rows":14})");
  EXPECT_EQ(model(small_mamba2_spec()),
            R"({"family":"mamba2","names":"hugging_face","layers":2,"width":20,"heads":6,)"
            R"("head_size":5,"state_size":7,"groups":2,"taps":4,"bias":true,)"
            R"("convolution_bias":true,"norm_before_gate":false,"norm_eps":1e-05,"dt_least":0.5,)"
            R"("dt_most":0.75,"tied":true,"table_rows":14})");
  EXPECT_EQ(model(small_rwkv6_spec(Rwkv6Version::kFive)),
            R"({"family":"rwkv6","version":"5.2","layers":2,"width":24,"heads":2,"ffn":33,)"
            R"("norm_eps":1e-05,"head_norm_eps":0.00064,"table_rows":13})");
}

TEST(Families, AnUnknownKeyIsRefusedWithTheKnownOnes) {
  const auto fault = [](const Spec& spec, const char* object) {
    Json config = Json::parse(spec_to_json(spec));
    config.at(Json::json_pointer(object))["x"] = 1;
    return parse_spec(config.dump(), kFile).status().message();
  };
  EXPECT_EQ(fault(small_rwkv6_spec(Rwkv6Version::kFive), "/model"),
            "config.json: model: expected one of the keys family, version, layers, width, heads, "
            "ffn, mix_rank, decay_rank, norm_eps, head_norm_eps, table_rows, found 'x'");
  EXPECT_EQ(fault(small_rwkv7_spec(), "/model/ranks"),
            "config.json: model.ranks: expected one of the keys decay, rate, value, gate, found "
            "'x'");
}

TEST(Families, NamesAndTypesAreOfOneFamilyEach) {
  std::set<std::string_view> names, types, architectures;
  for (const Family& family : families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    for (const std::string_view type : family.model_types) {
      EXPECT_TRUE(types.insert(type).second) << type;
    }
    EXPECT_EQ(family.read_gguf == nullptr, family.architectures.empty()) << family.name;
    for (const std::string_view architecture : family.architectures) {
      EXPECT_TRUE(architectures.insert(architecture).second) << architecture;
    }
  }
}

// Bundles older than the second family have no such key, and state files have a digest of it.
TEST(Families, OnlyTheFirstFamilyIsNotNamedInABundle) {
  EXPECT_FALSE(Json::parse(spec_to_json(small_image_spec()))["model"].contains("family"));
  EXPECT_EQ(Json::parse(spec_to_json(small_rwkv7_spec()))["model"]["family"], "rwkv7");
  EXPECT_EQ(OrderedJson::parse(spec_to_json(small_mamba2_spec()))["model"].begin().key(), "family");
}

}  // namespace
}  // namespace runnel
