#include "tests/server/openai/chat_models.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/template/chat_format.h"
#include "tests/engine/fake_model.h"
#include "tests/server/test_models.h"

namespace runnel {

const std::string kChatTemplate =
    "{% for m in messages %}[{{ m.role[0] | upper }}]{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}[A]{% endif %}";

ServedModel chat_model(const std::string& source, std::shared_ptr<const Tokenizer> tokenizer,
                       const EngineOptions& options) {
  ServedModel model = served_fake("fake", {}, options);
  model.tokenizer = std::move(tokenizer);
  model.chat = ChatFormat::make({.source = source, .name = "chat.jinja"}, model.tokenizer).value();
  return model;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& text,
                                              std::vector<LiteralToken> literals) {
  return tokenizer_of(std::vector<std::string>(100, text), std::move(literals));
}

std::shared_ptr<const Tokenizer> tokenizer_of(std::vector<std::string> texts,
                                              std::vector<LiteralToken> literals) {
  std::vector<std::pair<std::string, int32_t>> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(std::string(1, static_cast<char>(byte)), byte % 100);
  }
  return std::make_shared<const Tokenizer>(
      TokenizerParts{.first = LiteralTokens(std::move(literals)),
                     .model = ByteTrie(bytes),
                     .bytes = std::move(texts)});
}

std::string stripped(std::string text) {
  return text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

}  // namespace runnel
