#include "base/json.h"

#include <gmock/gmock.h>

#include "base/json_fields.h"
#include "base/ordered_json.h"

namespace runnel {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr JsonLimits kLimits{.bytes = 1000, .values = 20, .depth = 3};

std::string error_of(std::string_view text) {
  const Result<Json> tree = parse_json(text, "a.json", kLimits);
  EXPECT_TRUE(tree.ok() || tree.status().code() == Code::kInvalidArgument);
  return tree.status().message();
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const auto tree =
      parse_json(R"({"a": [1, -2, 1.5, true, null], "b": {"c": "\u00e9"}})", "", kLimits);
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_EQ(*tree, (Json{{"a", {1, -2, 1.5, true, nullptr}}, {"b", {{"c", "\u00e9"}}}}));
  EXPECT_EQ(parse_json(" 7 ", "", kLimits)->get<int>(), 7);
  EXPECT_EQ(parse_json("18446744073709551615", "", kLimits)->get<uint64_t>(), UINT64_MAX);
}

TEST(ParseJson, RefusesOtherText) {
  for (const char* const text :
       {"", "{", R"({"a")", "{} {}", "1 2", "{\"a\":\xff}", "\"\xc3\"", "\"\\ud800\"", "// x\n{}",
        "[1,]", "{a: 1}", "'a'", "NaN", "1e999", "01", "\"\t\""}) {
    EXPECT_THAT(error_of(text), StartsWith("a.json: not valid JSON: ")) << text;
  }
  EXPECT_THAT(error_of("{\n\"a\": 1,\n}"), HasSubstr("line 3, column 1"));
  EXPECT_EQ(error_of(std::string_view("{}\0", 3)),
            "a.json: not valid JSON: a zero byte at offset 2; expected UTF-8 text");
}

TEST(ParseJson, RefusesAKeyTwiceWithItsPath) {
  EXPECT_EQ(error_of(R"({"a": 1, "a": 2})"), "a.json: key 'a' appears twice; expected once");
  EXPECT_THAT(error_of(R"({"a": {"b": 1, "b": 2}})"), HasSubstr("key 'a.b' appears twice"));
  EXPECT_THAT(error_of(R"({"a": [0, {"b": 1, "b": 2}]})"), HasSubstr("key 'a[1].b'"));
  EXPECT_THAT(error_of(R"([{"\u0061": 1, "a": 2}])"), HasSubstr("key '[0].a'"));
  EXPECT_EQ(error_of(R"({"a": {"a": 1}, "b": {"a": 1}})"), "");
}

TEST(ParseJson, StopsAtEveryLimit) {
  EXPECT_EQ(error_of("[[[1]]]"), "");
  EXPECT_EQ(error_of("[[[[1]]]]"), "a.json: nested deeper than 3 levels; expected fewer");
  EXPECT_EQ(error_of(std::string(1000, '[')), error_of("[[[[1]]]]"));
  EXPECT_EQ(error_of("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]"), "");
  EXPECT_EQ(error_of("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"),
            "a.json: more than 20 JSON values; expected fewer");
  EXPECT_EQ(error_of(std::string(1001, ' ')), "a.json: 1001 bytes of JSON; expected at most 1000");
}

TEST(Json, IsShownInMessagesAndWrittenAsText) {
  EXPECT_EQ(describe(Json(12)), "12");
  EXPECT_EQ(describe(Json("re\nlu")), "'re\\x0alu'");
  EXPECT_EQ(describe(Json::array({1, 2})), "an array of 2");
  EXPECT_EQ(describe(Json::object()), "an object");
  EXPECT_EQ(json_string("a\"\n\u00e9\xff"), "\"a\\\"\\n\\u00e9\\ufffd\"");
  EXPECT_EQ(json_text({{"z", 1}, {"a", "\xff"}}), "{\"z\":1,\"a\":\"\ufffd\"}");
  EXPECT_EQ(json_text({{"z", 1}}, 2), "{\n  \"z\": 1\n}");
}

TEST(Fields, KeepTheFirstFaultAndContinueWithHarmlessValues) {
  const Json tree = *parse_json(R"({"size": 9, "on": 1, "kind": "c"})", "", kLimits);
  const std::string file = "a.json";
  Faults faults(file);
  const Fields root(faults, &tree, "", {"size", "on", "kind", "none"});
  EXPECT_EQ(root.integer("size", 1, 9), 9);
  EXPECT_TRUE(faults.ok());
  EXPECT_EQ(root.integer("size", 2, 8), 2);
  EXPECT_TRUE(root.boolean("on", true));
  EXPECT_EQ(root.choice("kind", std::array{Choice{"a", 1}, Choice{"b", 2}}), 1);
  EXPECT_EQ(faults.status().message(), "a.json: size: expected an integer from 2 to 8, found 9");
}

TEST(TreeBytes, CountTextsAndItems) {
  EXPECT_EQ(tree_bytes(nullptr), 0);
  const int64_t text = tree_bytes(std::string(1000, 'x'));
  EXPECT_GE(text, 1032);
  EXPECT_LE(text, 1100);
  const OrderedJson list = OrderedJson::array({std::string(1000, 'x'), 1, 2});
  EXPECT_GE(tree_bytes(list), text + 3 * static_cast<int64_t>(sizeof(OrderedJson)));
  OrderedJson object = OrderedJson::object();
  object[std::string(500, 'k')] = list;
  EXPECT_GE(tree_bytes(object), tree_bytes(list) + 500);
}

TEST(Fields, NameTheKeysPath) {
  const Json tree = *parse_json(R"({"inner": {"odd": 1}})", "", kLimits);
  const std::string file = "a.json";
  const auto fault = [&](auto read) {
    Faults faults(file);
    read(Fields(faults, &tree, "", {"inner"}));
    return faults.status().message();
  };
  EXPECT_EQ(fault([](const Fields& root) { root.object("inner", {"even", "one"}); }),
            "a.json: inner: expected one of the keys even, one, found 'odd'");
  EXPECT_EQ(fault([](const Fields& root) { root.object("inner", {"odd"}).boolean("odd", true); }),
            "a.json: inner.odd: expected true or false, found 1");
  EXPECT_EQ(fault([](const Fields& root) { root.object("outer", {}); }),
            "a.json: outer: expected an object, found no such key");
}

}  // namespace
}  // namespace runnel
