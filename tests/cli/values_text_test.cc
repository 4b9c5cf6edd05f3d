#include "cli/values_text.h"

#include <gmock/gmock.h>

namespace runnel {
namespace {

using testing::ElementsAre;

TEST(ValuesText, ReadsNumbers) {
  EXPECT_THAT(*parse_values("1,2,3", 10, "x"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*parse_values("  0 \t9\r\n,, 5 ", 10, "x"), ElementsAre(0, 9, 5));
  EXPECT_TRUE(parse_values("", 10, "x")->empty());
}

TEST(ValuesText, NamesTheWrongWord) {
  const auto error = [](const char* text) {
    const auto values = parse_values(text, 10, "--values");
    return values.ok() ? "" : values.status().message();
  };
  EXPECT_EQ(error("1,2,x"), "--values: value 2 is 'x'; expected a whole number from 0 to 9");
  for (const char* wrong : {"10", "-1", "1.5", "0x1", "99999999999999999999", "1 2 +3", "\x01"}) {
    EXPECT_NE(error(wrong), "") << wrong;
  }
  EXPECT_EQ(error("\x1b[31m"),
            "--values: value 0 is '\\x1b[31m'; expected a whole number from 0 to 9");
}

TEST(ValuesText, ReadsLines) {
  EXPECT_THAT(*parse_value_lines("1 2\n\n3,4\r\n5", 10, "f", 10),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(5)));
  EXPECT_THAT(*parse_value_lines("1 2\n3\nx", 10, "f", 2),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(parse_value_lines("1 2\n3\nx", 10, "f", 3).status().message(),
              testing::StartsWith("f, line 3: value 0 is 'x'"));
}

TEST(ValuesText, WritesSymbolsOrNumbers) {
  const std::vector<std::string> symbols = {"a", "b\n", "\x1b[2J"};
  const std::vector<int32_t> values = {0, 1, 2, 3};
  EXPECT_EQ(values_to_text(values, symbols), "ab\n\\x1b[2J3 ");
  EXPECT_EQ(values_to_text(values, {}), "0 1 2 3 ");
}

}  // namespace
}  // namespace runnel
