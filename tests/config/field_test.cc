#include "config/field.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "base/json.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

const Field& field_of(std::string_view key) {
  for (const Field& field : setting_fields()) {
    if (field.key == key) return field;
  }
  ADD_FAILURE() << "no field " << key;
  return setting_fields()[0];
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Fields, AreUniqueAndHaveEveryLimit) {
  std::set<std::string> keys;
  std::set<std::string> flags;
  for (const Field& field : setting_fields()) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_TRUE(flags.insert(field.flag).second) << field.flag;
    EXPECT_FALSE(field.what.empty()) << field.key;
    EXPECT_TRUE(field.flag.starts_with("--")) << field.key;
  }
  for (const Limit* limit : all_limits()) {
    EXPECT_TRUE(keys.contains(std::string("limits.") + limit->name)) << limit->name;
  }
}

TEST(Fields, EachLimitIsSetAtItsOwnPlace) {
  ServerConfig config;
  for (const Limit* limit : all_limits()) {
    const Field& field = field_of(std::string("limits.") + limit->name);
    ASSERT_TRUE(set_from_flag(field, std::to_string(limit->max), config).ok());
    EXPECT_EQ(config.limit(*limit), limit->max);
    ASSERT_TRUE(set_from_flag(field, std::to_string(limit->min), config).ok());
    EXPECT_EQ(config.limit(*limit), limit->min);
    EXPECT_EQ(value_text(field, config), std::to_string(limit->min));
    ASSERT_TRUE(set_from_flag(field, std::to_string(limit->default_value), config).ok());
  }
  EXPECT_EQ(config, ServerConfig());
}

TEST(Fields, AnIntegerOutOfRangeOrNoNumberIsRefusedWithItsFlag) {
  ServerConfig config;
  const Field& samples = field_of("limits.samples");
  EXPECT_EQ(set_from_flag(samples, "0", config).message(),
            "--samples is 0; it must be between 1 and 4096");
  EXPECT_EQ(set_from_flag(samples, "4097", config).message(),
            "--samples is 4097; it must be between 1 and 4096");
  for (const char* bad : {"", "1x", "x", "1.5", " 1", "99999999999999999999", "+1", "0x10"}) {
    const Status status = set_from_flag(samples, bad, config);
    EXPECT_EQ(status.message(), "--samples is '" + std::string(bad) +
                                    "'; it must be a whole number between 1 and 4096");
  }
  EXPECT_EQ(config, ServerConfig());
}

TEST(Fields, AChoiceIsOneOfThoseNamed) {
  ServerConfig config;
  EXPECT_EQ(set_from_flag(field_of("isa"), "sse2", config).message(),
            "--isa is 'sse2'; it must be auto, portable, avx2, avx512, avx512bf16 or amx");
  EXPECT_EQ(set_from_flag(field_of("precision"), "int4", config).message(),
            "--precision is 'int4'; it must be auto, fp32, bf16, int8 or blocks");
  EXPECT_TRUE(set_from_flag(field_of("isa"), "avx2", config).ok());
  EXPECT_EQ(config.isa, "avx2");
}

TEST(Fields, ASwitchIsTrueOrFalse) {
  ServerConfig config;
  EXPECT_EQ(set_from_flag(field_of("log.json"), "yes", config).message(),
            "--log-json is 'yes'; it must be true or false");
  EXPECT_TRUE(set_from_flag(field_of("log.json"), "true", config).ok());
  EXPECT_TRUE(config.log_json);
  EXPECT_TRUE(set_from_flag(field_of("log.json"), "false", config).ok());
  EXPECT_FALSE(config.log_json);
}

TEST(Fields, AnEmptyFileNameMeansNoFile) {
  ServerConfig config;
  EXPECT_TRUE(set_from_flag(field_of("keys"), "keys.jsonl", config).ok());
  EXPECT_EQ(config.keys, "keys.jsonl");
  EXPECT_TRUE(set_from_flag(field_of("keys"), "", config).ok());
  EXPECT_EQ(config.keys, "");
  EXPECT_EQ(default_text(field_of("keys")), "none");
  EXPECT_EQ(default_text(field_of("threads")), "0");
}

TEST(Fields, TextMustNotBeEmptyOrTooLong) {
  ServerConfig config;
  EXPECT_EQ(set_from_flag(field_of("address"), "", config).message(),
            "--address is empty; it must have at least one character");
  EXPECT_THAT(set_from_flag(field_of("address"), std::string(5000, 'a'), config).message(),
              HasSubstr("at most 4096"));
}

TEST(Fields, EachIsInTheExample) {
  const Json example = Json::parse(read_file("config/serve.json"));
  for (const Field& field : setting_fields()) {
    std::string place = "/" + field.key;
    std::ranges::replace(place, '.', '/');
    EXPECT_TRUE(example.contains(Json::json_pointer(place))) << field.key;
  }
}

TEST(Fields, EachMatchesItsRowInTheDocs) {
  const std::string docs = read_file("docs/configuration.md");
  for (const Field& field : setting_fields()) {
    EXPECT_THAT(docs, HasSubstr(table_row(field))) << "the row of docs/configuration.md";
  }
  EXPECT_THAT(docs, HasSubstr("`models`"));
  EXPECT_THAT(docs, HasSubstr("`models[].path`"));
  EXPECT_THAT(docs, HasSubstr("`models[].name`"));
  EXPECT_THAT(docs, HasSubstr("`models[].aliases`"));
}

}  // namespace
}  // namespace runnel
