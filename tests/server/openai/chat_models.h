// A chat model that samples bytes, for tests of the chat endpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/text/tokenizer.h"
#include "server/host/served_models.h"

namespace runnel {

// Renders a user's "HI" as "[U]HI\n[A]", and tool calls as <tool_call>{...}</tool_call>.
extern const std::string kChatTemplate;

// The model's values are 0 to 99.
ServedModel chat_model(const std::string& source = kChatTemplate,
                       std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::of_bytes(),
                       const EngineOptions& options = {});

// A tokenizer in which every value has this text. It finds `literals` in the text of the template.
std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& text,
                                              std::vector<LiteralToken> literals = {});
// The same, with a text for each value.
std::shared_ptr<const Tokenizer> tokenizer_of(std::vector<std::string> texts,
                                              std::vector<LiteralToken> literals = {});

// The text without leading white space.
std::string stripped(std::string text);

}  // namespace runnel
