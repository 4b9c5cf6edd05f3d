// Compares templates of our own with the output of Jinja2 (tests/golden/make_chat.py).
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/ordered_json.h"
#include "models/template/template_set.h"

namespace runnel {
namespace {

std::string file(const std::string& name) {
  std::ifstream in("tests/golden/chat/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Thursday, 5 March 2026, 07:08:09.
std::tm then() {
  std::tm time{};
  time.tm_sec = 9;
  time.tm_min = 8;
  time.tm_hour = 7;
  time.tm_mday = 5;
  time.tm_mon = 2;
  time.tm_year = 126;
  time.tm_wday = 4;
  return time;
}

TEST(GoldenChat, RendersAsJinja2Does) {
  const OrderedJson golden =
      parse_ordered_json(file("cases.json"), "cases.json", {1 << 20, 100'000, 32}).value();
  ASSERT_GT(golden["cases"].size(), 50U);
  for (const OrderedJson& one : golden["cases"]) {
    const auto name = one["template"].get<std::string>();
    const auto spoken = one["conversation"].get<std::string>();
    TemplateFiles files{.source = file(name), .name = name};
    for (const auto& [key, token] : golden["tokens"].items()) files.tokens[key] = token;
    Conversation conversation;
    conversation.messages = golden["conversations"][spoken]["messages"];
    if (golden["conversations"][spoken].contains("tools")) {
      conversation.tools = golden["conversations"][spoken]["tools"];
    }
    conversation.add_generation_prompt = one["prompt"].get<bool>();
    if (conversation.add_generation_prompt) conversation.variables["enable_thinking"] = false;
    conversation.now = then();
    const auto templates = TemplateSet::parse(files);
    ASSERT_TRUE(templates.ok()) << templates.status().message();
    const Result<MarkedText> text = templates->render(conversation);
    if (one.contains("text")) {
      ASSERT_TRUE(text.ok()) << text.status().message();
      EXPECT_EQ(text->bytes, one["text"].get<std::string>()) << name << ", " << spoken;
    } else {
      EXPECT_EQ(text.status().code(), Code::kInvalidArgument) << name << ", " << spoken;
      const bool says_same =
          !one.contains("raised") || text.status().message() == one["raised"].get<std::string>();
      EXPECT_TRUE(says_same) << text.status().message();
    }
  }
}

}  // namespace
}  // namespace runnel
