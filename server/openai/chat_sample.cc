#include "server/openai/chat_sample.h"

#include <algorithm>
#include <utility>

#include "server/openai/random_hex.h"

namespace runnel {

void ChatSample::add(const ValueRun& run) {
  for (size_t i = 0; i < run.values.size() && answer_.is_thinking(); ++i) {
    const int64_t before = i == 0 || run.text_ends.empty() ? 0 : run.text_ends[i - 1];
    begins_.push_back(given_ + before);
  }
  given_ += std::ssize(run.text);
  choice_.add(run);
  take();
}

void ChatSample::finish() {
  choice_.finish();
  take();
  answer_.finish();
  ended_ = true;
}

std::vector<ChoiceToken> ChatSample::take_tokens() {
  top_bytes_ = 0;
  return std::exchange(tokens_, {});
}

std::vector<ChoiceToken> ChatSample::take_spoken_tokens() {
  if (answer_.is_thinking() && !ended_) return {};
  const int64_t thought = answer_.thinking_bytes();
  std::erase_if(tokens_, [&](const ChoiceToken& token) { return token.begin < thought; });
  return take_tokens();
}

void ChatSample::take() {
  ChoicePart part = choice_.take();
  answer_.add(part.text);
  for (ChoiceToken& token : part.tokens) {
    top_bytes_ += std::ssize(token.top) * static_cast<int64_t>(sizeof(TopLogProb));
    tokens_.push_back(std::move(token));
  }
}

int64_t ChatSample::reasoning_tokens() const {
  return std::ranges::count_if(begins_,
                               [this](int64_t begin) { return begin < answer_.thinking_bytes(); });
}

int64_t ChatSample::bytes() const {
  return choice_.bytes() + answer_.bytes() + top_bytes_ +
         static_cast<int64_t>(begins_.capacity() * sizeof(int64_t) +
                              tokens_.capacity() * sizeof(ChoiceToken));
}

AnsweredToolCall::AnsweredToolCall(ToolCall made)
    : id("call_" + random_hex(24)), call(std::move(made)) {}

}  // namespace runnel
