#include "models/template/load_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/bundle/gguf_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// The text of a format for a user's "<|end|>", with or without tools.
std::string rendered(const ChatFormat& format, bool with_tools = false) {
  Conversation conversation;
  conversation.messages = OrderedJson::array({{{"role", "user"}, {"content", "<|end|>"}}});
  if (with_tools) conversation.tools = OrderedJson::array({{{"type", "function"}}});
  const auto text = format.render(conversation);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? text->bytes : "";
}

class LoadTemplate : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(
        std::filesystem::path(directory_.path() + "/" + name).parent_path());
    write_file(directory_.path() + "/" + name, text);
  }

  std::shared_ptr<const ChatFormat> format() const {
    auto loaded = load_chat_format(directory_.path(), Tokenizer::of_bytes());
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? *loaded : nullptr;
  }

  const TempDir directory_;
};

TEST_F(LoadTemplate, SeparateFilesComeFirst) {
  EXPECT_EQ(load_template(directory_.path()).status().code(), Code::kNotFound);
  write("rwkv_vocab_v20230424.txt", "");
  EXPECT_EQ(format()->name(), "rwkv7-g1");
  EXPECT_EQ(format()->begin(), std::vector<int32_t>{0});
  write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": "{{ bos_token }}"})");
  EXPECT_EQ(rendered(*format()), "<b>");
  EXPECT_TRUE(format()->begin().empty());
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "tools{{ eos_token }}"},
                              {"name": "default", "template": "plain{{ bos_token }}"}]})");
  EXPECT_EQ(rendered(*format()), "plain<s>");
  EXPECT_EQ(rendered(*format(), true), "tools</s>");
  write("chat_template.jinja", "own");
  EXPECT_EQ(rendered(*format()), "own");
  EXPECT_EQ(rendered(*format(), true), "own");
  write("additional_chat_templates/tool_use.jinja", "own tools");
  EXPECT_EQ(rendered(*format()), "own");
  EXPECT_EQ(rendered(*format(), true), "own tools");
}

TEST_F(LoadTemplate, NamesTheFileThatIsWrong) {
  write("tokenizer_config.json", "{");
  EXPECT_THAT(load_template(directory_.path()).status().message(),
              HasSubstr("tokenizer_config.json"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "other", "template": "x"}]})");
  EXPECT_EQ(load_template(directory_.path()).status().code(), Code::kNotFound);
  write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(load_chat_format(directory_.path(), nullptr).status().message(),
              HasSubstr("chat_template.jinja, line 1: "));
  write("chat_template.jinja", std::string((256 << 10) + 1, 'x'));
  EXPECT_THAT(load_template(directory_.path()).status().message(),
              HasSubstr("chat_template.jinja"));
}

TEST_F(LoadTemplate, ReadsTheKeysOfAGgufFile) {
  const std::string path = directory_.path() + "/m.gguf";
  const auto of = [&](const GgufWriter& keys, const std::string& own = "") {
    write("m.gguf", keys.file());
    return load_chat_format(path, Tokenizer::of_bytes(), own);
  };
  GgufWriter keys;
  keys.text("tokenizer.ggml.model", "gpt2");
  EXPECT_EQ(of(keys).status().code(), Code::kNotFound);
  keys.texts("tokenizer.ggml.tokens", {"a", "<b>", "</s>"});
  keys.number("tokenizer.ggml.bos_token_id", 1U).number("tokenizer.ggml.eos_token_id", 2U);
  keys.number("tokenizer.ggml.padding_token_id", 3U);  // beyond the tokens, so it has no text
  keys.text("tokenizer.chat_template", "plain{{ bos_token }}{{ pad_token }}");
  const auto plain = of(keys);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(rendered(**plain), "plain<b>");
  EXPECT_EQ((*plain)->name(), "tokenizer.chat_template");
  keys.text("tokenizer.chat_template.tool_use", "tools{{ eos_token }}");
  EXPECT_EQ(rendered(**of(keys), true), "tools</s>");
  write("own.jinja", "own{{ eos_token }}");
  EXPECT_EQ(rendered(**of(keys, directory_.path() + "/own.jinja")), "own</s>");
  EXPECT_THAT(of(GgufWriter().text("tokenizer.chat_template", "{% if %}")).status().message(),
              HasSubstr("tokenizer.chat_template, line 1: "));
}

TEST_F(LoadTemplate, RwkvInAGgufFileHasTheBuiltInTemplate) {
  const std::string path = directory_.path() + "/m.gguf";
  GgufWriter keys;
  keys.text("tokenizer.ggml.model", "rwkv");
  for (const char* const name : {"", "rwkv-world"}) {
    write("m.gguf", GgufWriter(keys).text("tokenizer.chat_template", name).file());
    const auto files = load_template(path);
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_EQ(files->name, "rwkv7-g1");
    EXPECT_EQ(files->begin, std::vector<int32_t>{0});
  }
  write("m.gguf", GgufWriter(keys).text("tokenizer.chat_template", "own").file());
  EXPECT_EQ(load_template(path)->source, "own");
}

}  // namespace
}  // namespace runnel
