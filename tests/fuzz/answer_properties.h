// Checks properties that every text of a chat model must have. properties.h does the same for
// files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Parses an answer. The first byte of `input` chooses the form of calls, the end of the prompt, and
// whether one call ends the answer. However the text is cut, the events joined by kind must be the
// same and none may be empty. Text must come out once and in order, and arguments of calls must be
// JSON objects. True if the answer had a call.
bool check_chat_answer(std::string_view input);

// Small answers to start from, and words for the fuzzer to insert.
std::vector<std::string> answer_seeds();
std::span<const std::string_view> answer_words();

}  // namespace runnel
