#include "server/openai/choice.h"

#include <algorithm>
#include <utility>

#include "base/hex.h"
#include "base/utf8.h"

namespace runnel {
namespace {

// The length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t begun(std::string_view text, std::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && !stop.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

}  // namespace

void CompletionChoice::begin(std::string_view text, std::vector<ChoiceToken> tokens) {
  text_ += text;
  free_ = text_.size();
  tokens_ = std::move(tokens);
  for (const ChoiceToken& token : tokens_) top_ += std::ssize(token.top);
}

void CompletionChoice::add(const ValueRun& run) {
  if (stopped_) return;
  if (with_tokens_) {
    const int64_t before = bytes_ + std::ssize(text_);
    size_t top = 0;
    for (size_t i = 0; i < run.values.size(); ++i) {
      ChoiceToken& token = tokens_.emplace_back();
      token.value = run.values[i];
      token.log_prob = run.log_probs[i];
      token.begin = before + (i == 0 || run.text_ends.empty() ? 0 : run.text_ends[i - 1]);
      const size_t count = run.top_counts.empty() ? 0 : static_cast<size_t>(run.top_counts[i]);
      const auto first = run.top.begin() + static_cast<std::ptrdiff_t>(top);
      token.top.assign(first, first + static_cast<std::ptrdiff_t>(count));
      top += count;
    }
    top_ += std::ssize(run.top);
  }
  text_ += run.text;
  find_stop();
}

// The first stop text ends the choice. The engine ends the sample there, too.
void CompletionChoice::find_stop() {
  size_t stop = std::string::npos;
  size_t held = 0;
  const std::string_view rest = std::string_view(text_).substr(free_);
  for (const std::string& text : stops_) {
    stop = std::min(stop, text_.find(text, free_));
    held = std::max(held, begun(rest, text));
  }
  stopped_ = stop != std::string::npos;
  if (!stopped_) {
    free_ = text_.size() - held;
    return;
  }
  text_.resize(stop);
  free_ = stop;
  const int64_t end = bytes_ + static_cast<int64_t>(stop);
  std::erase_if(tokens_, [end](const ChoiceToken& token) { return token.begin >= end; });
}

void CompletionChoice::finish() { free_ = text_.size(); }

ChoicePart CompletionChoice::take() {
  ChoicePart part = {.text = {}, .tokens = {}, .bytes = bytes_, .characters = characters_};
  if (free_ == text_.size()) {
    part.text = std::exchange(text_, "");
    part.tokens = std::exchange(tokens_, {});
  } else {
    part.text = text_.substr(0, free_);
    text_.erase(0, free_);
    const int64_t end = bytes_ + static_cast<int64_t>(free_);
    const auto held = std::ranges::find_if(
        tokens_, [end](const ChoiceToken& token) { return token.begin >= end; });
    std::move(tokens_.begin(), held, std::back_inserter(part.tokens));
    tokens_.erase(tokens_.begin(), held);
  }
  free_ = 0;
  bytes_ += std::ssize(part.text);
  characters_ += characters_in(part.text);
  for (const ChoiceToken& token : part.tokens) top_ -= std::ssize(token.top);
  return part;
}

int64_t CompletionChoice::bytes() const {
  return static_cast<int64_t>(text_.capacity() + tokens_.capacity() * sizeof(ChoiceToken)) +
         top_ * static_cast<int64_t>(sizeof(TopLogProb));
}

int64_t characters_in(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

std::string token_name(int32_t value, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "token_id:" + std::to_string(value);
  const std::string_view bytes = tokenizer->bytes(value);
  if (valid_utf8_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) name += "\\x" + hex(std::string_view(&byte, 1));
  return name;
}

}  // namespace runnel
