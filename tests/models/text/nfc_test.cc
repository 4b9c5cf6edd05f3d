#include "models/text/nfc.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

namespace runnel {
namespace {

struct Case {
  const char* text;
  const char* composed;
};

// Cases of Unicode's UAX #15. The golden tokenizer "neox" covers more.
TEST(Nfc, ComposesAndOrders) {
  for (const Case& one : {
           Case{"plain, \u00e9\u02ff", "plain, \u00e9\u02ff"}, Case{"e\u0301", "\u00e9"},
           Case{"\u212b", "\u00c5"},                          // a singleton
           Case{"a\u0301\u0316", "\u00e1\u0316"},             // not blocked
           Case{"a\u0316\u0301", "\u00e1\u0316"},             // the same
           Case{"a\u0305\u0301", "a\u0305\u0301"},            // blocked
           Case{"\u0915\u093c", "\u0915\u093c"},              // excluded from composition
           Case{"\u0958", "\u0915\u093c"},                    // the same
           Case{"\u1100\u1161\u11a8", "\uac01"},              // Hangul
           Case{"\uac00\u11a8", "\uac01"},                    // the same
           Case{"\U0001d15e", "\U0001d157\U0001d165"},        // beyond 16 bits
           Case{"\u0f71\u0f72\u0f80", "\u0f71\u0f72\u0f80"},  // marks before any letter
       }) {
    EXPECT_EQ(nfc(one.text), one.composed);
    EXPECT_EQ(nfc(one.composed), one.composed);
  }
  EXPECT_EQ(nfc(""), "");
}

// Time quadratic in this run would be minutes. The test measures processor time, which does not
// depend on how busy the machine is.
TEST(Nfc, LongRunsOfMarksAreFast) {
  std::string text = "x", sorted = "x";
  for (int i = 0; i < 400000; ++i) text += "\u0302";
  for (int i = 0; i < 400000; ++i) text += "\u0316";
  for (int i = 0; i < 400000; ++i) sorted += "\u0316";
  for (int i = 0; i < 400000; ++i) sorted += "\u0302";
  const std::clock_t begin = std::clock();
  EXPECT_EQ(nfc(text), sorted);
  EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace runnel
