// The table of families: each row is whole, and of the alternative at its place.
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

TEST(Families, ARowReadsAndWritesTheAlternativeAtItsPlace) {
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

// Bundles of before there were others have no such key, and a state file holds a digest of it.
TEST(Families, OnlyTheFirstIsNotNamedInABundle) {
  EXPECT_FALSE(Json::parse(spec_to_json(small_image_spec()))["model"].contains("family"));
  EXPECT_EQ(Json::parse(spec_to_json(small_rwkv7_spec()))["model"]["family"], "rwkv7");
  EXPECT_EQ(OrderedJson::parse(spec_to_json(small_mamba2_spec()))["model"].begin().key(), "family");
}

}  // namespace
}  // namespace runnel
