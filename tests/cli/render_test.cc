#include "cli/render.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "cli/console.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

class Render : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    return folder_.write(name, text);
  }
  int run() {
    Console console{.out = out_, .err = err_};
    return run_render(options_, console);
  }

  const TestFolder folder_;
  RenderOptions options_;
  std::ostringstream out_, err_;
};

TEST_F(Render, PrintsTheTextAndItsSpans) {
  options_.template_file = file("a.jinja", "{{ eos_token }}{{ messages[0].content }}\n");
  options_.tokens_file = file("tokens.json", R"({"eos_token": {"content": "<e>"}})");
  options_.request = file("request.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(run(), kExitOk);
  EXPECT_EQ(out_.str(), "<e>Hi");
  out_.str("");
  options_.json = true;
  EXPECT_EQ(run(), kExitOk);
  EXPECT_EQ(out_.str(),
            "{\"text\":\"<e>Hi\",\"spans\":[{\"begin\":0,\"end\":3,\"writer\":\"template\"},"
            "{\"begin\":3,\"end\":5,\"writer\":\"input\"}]}\n");
}

TEST_F(Render, ABundlesTokenizerGivesTheValues) {
  std::filesystem::copy_file("tests/golden/tokenizers/words/tokenizer.json",
                             folder_.path("tokenizer.json"));
  options_.bundle = folder_.path("");
  file("chat_template.jinja", "{{ messages[0].content }}<|end|>");
  options_.request = file("request.json", R"({"messages": [{"content": "a <|end|>"}]})");
  options_.json = true;
  EXPECT_EQ(run(), kExitOk) << err_.str();
  // Letters in a user's message do not form a special token.
  EXPECT_NE(out_.str().find("\"values\":[64,220,27,91,363,91,29,900]}"), std::string::npos)
      << out_.str();
}

TEST_F(Render, TheRequestMaySetTheTime) {
  options_.template_file = file("d.jinja", "{{ strftime_now('%Y') }}");
  options_.request = file("request.json", R"({"messages": [], "now": 1772694489})");
  EXPECT_EQ(run(), kExitOk) << err_.str();
  EXPECT_EQ(out_.str(), "2026");
}

TEST_F(Render, AnErrorOfTheTemplateIsItsMessage) {
  options_.template_file = file("b.jinja", "{{ raise_exception('no system role') }}");
  options_.request = file("request.json", R"({"messages": []})");
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_EQ(err_.str(), "runnel: no system role\n");
}

TEST_F(Render, ATerminalGetsNoControlCharacters) {
  options_.template_file = file("e.jinja", "{{ messages[0].content }}");
  options_.request = file("request.json", R"({"messages": [{"content": "\u001b[31m"}]})");
  Console terminal{.out = out_, .err = err_, .out_terminal = true};
  EXPECT_EQ(run_render(options_, terminal), kExitOk) << err_.str();
  EXPECT_EQ(out_.str(), "\\x1b[31m");
  out_.str("");
  EXPECT_EQ(run(), kExitOk);
  EXPECT_EQ(out_.str(), "\x1b[31m") << "a file gets what the model gets";
}

TEST_F(Render, RefusesARequestThatItDoesNotKnow) {
  options_.template_file = file("c.jinja", "x");
  options_.request = file("request.json", R"({"messages": [], "stream": true})");
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_NE(err_.str().find("'stream' is not a field of a request"), std::string::npos);
}

}  // namespace
}  // namespace runnel
