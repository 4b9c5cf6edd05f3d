#include "base/field.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace runnel {
namespace {

std::string_view shouted(std::string_view field) { return field == "keep" ? "KEEP" : ""; }

TEST(Field, AMessageUsesTheFieldNamesOfItsDoor) {
  const std::string message = place_of("keep") + " is set with " + place_of("samples") + " = 2";
  EXPECT_EQ(rendered(message), "keep is set with samples = 2");
  EXPECT_EQ(rendered(message, shouted), "KEEP is set with samples = 2");
  EXPECT_EQ(rendered("nothing to put in", shouted), "nothing to put in");
}

TEST(Field, AHintIsLeftOutWhereTheDoorLacksItsField) {
  const std::string message =
      "no" + hint(": use " + place_of("keep")) + hint(", or " + place_of("samples")) + "; sorry";
  EXPECT_EQ(rendered(message), "no: use keep, or samples; sorry");
  EXPECT_EQ(rendered(message, shouted), "no: use KEEP; sorry");
}

TEST(Field, AFieldInAHintIsNotTheFieldAtFault) {
  EXPECT_EQ(first_field("no" + hint(": use " + place_of("keep"))), "");
  EXPECT_EQ(first_field(hint("use " + place_of("keep")) + " for " + place_of("samples")),
            "samples");
  EXPECT_EQ(invalid_argument("full" + hint(", or set " + place_of("keep"))).field(), "");
}

TEST(Field, ATableTranslatesFieldsToTheNamesOfADoor) {
  constexpr NamedField kTable[] = {{"keep", "--keep"}, {"samples", "--count"}};
  EXPECT_EQ(word_in(kTable, "samples"), "--count");
  EXPECT_EQ(word_in(kTable, "stop"), "");
}

TEST(Field, UnclosedMarksNameNoField) {
  for (const char* const text : {"\x1f",
                                 "a\x1f"
                                 "b",
                                 "\x1e",
                                 "a\x1e"
                                 "b"}) {
    EXPECT_EQ(first_field(text), "");
    rendered(text, shouted);  // returns
  }
}

TEST(Field, AStatusKnowsItsField) {
  const Status status = invalid_argument(place_of("keep") + " is set twice");
  EXPECT_EQ(status.message(), "keep is set twice");
  EXPECT_EQ(status.message(shouted), "KEEP is set twice");
  EXPECT_EQ(status.field(), "keep");
  EXPECT_EQ(Status(status).field(), "keep");
  Status other = not_found("no session 's'");
  EXPECT_EQ(other.field(), "");
  EXPECT_EQ(other.at_field("session").field(), "session");
  EXPECT_EQ(other.raw_message(), "no session 's'");
}

}  // namespace
}  // namespace runnel
