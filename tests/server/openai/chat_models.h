// A model of conversations that writes bytes, for the endpoints of chat.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/text/tokenizer.h"
#include "server/host/served_models.h"

namespace runnel {

// "[U]HI\n[A]" for a user's "HI"; calls as <tool_call>{...}</tool_call>.
extern const std::string kChatTemplate;

// Its values are 0 to 99.
ServedModel chat_model(const std::string& source = kChatTemplate,
                       std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::of_bytes(),
                       const EngineOptions& options = {});

// A tokenizer all of whose values stand for `text`. `literals` are found in the template's text.
std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& text,
                                              std::vector<LiteralToken> literals = {});

// Without the white space that begins it.
std::string stripped(std::string text);

}  // namespace runnel
