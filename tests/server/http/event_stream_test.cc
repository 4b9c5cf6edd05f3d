#include "server/http/event_stream.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace runnel {
namespace {

TEST(EventStream, AnEventHasATypeIfTheApiHasOne) {
  EXPECT_EQ(event_of("[DONE]"), "data: [DONE]\n\n");
  EXPECT_EQ(event_of("{}", "a.b"), "event: a.b\ndata: {}\n\n");
}

TEST(EventStream, CharactersAtWhichClientsEndLinesAreEscaped) {
  const std::string others = "\u00e9\u2027\u202a\u4e2d\xC2\x84";
  const std::string json = json_text({{"text", "a\xC2\x85-\u2028c\u2029\u2029d\\\u2028" + others}});
  const std::string event = event_of(json);
  EXPECT_EQ(event,
            "data: {\"text\":\"a\\u0085-\\u2028c\\u2029\\u2029d\\\\\\u2028" + others + "\"}\n\n");
  EXPECT_EQ(Json::parse(event.substr(6)), Json::parse(json));
  const std::string plain = json_text({{"text", others}});
  EXPECT_EQ(event_of(plain), "data: " + plain + "\n\n");
}

}  // namespace
}  // namespace runnel
