// The properties that hold for every text that a chat model writes, as properties.h has them for
// files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Takes an answer apart. Its first byte chooses the form of calls, the end of the prompt, and
// whether one call ends the answer. However the text is cut, the events joined by kind are those of
// the whole; none is empty; text goes out once and in order; calls have arguments that are JSON
// objects. True if the answer had a call.
bool check_chat_answer(std::string_view input);

// Small answers to start from, and words that are worth inserting.
std::vector<std::string> answer_seeds();
std::span<const std::string_view> answer_words();

}  // namespace runnel
