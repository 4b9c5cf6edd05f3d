#include "server/openai/chat_answer.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThought = "</think>";
constexpr std::string_view kSpaces = " \t\r\n";
constexpr size_t kMostSpaces = 256;  // spaces that are held back
// Text is added to rest_ in pieces of this size, so that little text is moved when its first bytes
// leave rest_.
constexpr size_t kPieceBytes = 4 << 10;

// The length of the longest end of `text` that is the beginning of `tag` but not all of it.
size_t begun(std::string_view text, std::string_view tag) {
  size_t length = std::min(text.size(), tag.size() - 1);
  while (length > 0 && !tag.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

// The length of `text` without the spaces at its end. At most kMostSpaces are held back.
size_t without_spaces(std::string_view text) {
  const size_t length = text.find_last_not_of(kSpaces) + 1;
  return std::max(length, text.size() - std::min(text.size(), kMostSpaces));
}

size_t leading_spaces(std::string_view text) {
  return std::min(text.find_first_not_of(kSpaces), text.size());
}

// The thinking tag that ends a prompt, apart from spaces, possibly without its ">"; empty if none
// does.
std::string_view last_tag(std::string_view prompt) {
  prompt = prompt.substr(0, prompt.find_last_not_of(kSpaces) + 1);
  for (const std::string_view tag : {kThought, kThink}) {
    for (const size_t cut : {0, 1}) {
      if (prompt.ends_with(tag.substr(0, tag.size() - cut))) return tag.substr(0, tag.size() - cut);
    }
  }
  return {};
}

}  // namespace

ChatAnswer::ChatAnswer(const Options& options, std::string_view prompt) : options_(options) {
  if (options.continues) {
    state_ = State::kContent;
    spoke_ = true;
    return;
  }
  const std::string_view tag = last_tag(prompt);
  if (tag == kThink) {
    state_ = State::kThinking;
  } else if (tag == kThought) {
    state_ = State::kContent;  // the template has written an empty thinking part
  } else if (!tag.empty()) {
    // The model writes the rest of the tag, as RWKV's models do.
    state_ = kThought.starts_with(tag) ? State::kThinking : State::kStart;
    rest_ = tag;
    taken_ = -std::ssize(tag);
  }
}

void ChatAnswer::add(std::string_view text) {
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kPieceBytes))) {
    rest_ += text.substr(0, kPieceBytes);
    run();
  }
}

void ChatAnswer::finish() {
  ended_ = true;
  run();
}

std::vector<ChatEvent> ChatAnswer::take() { return std::exchange(events_, {}); }

int64_t ChatAnswer::bytes() const {
  auto bytes = static_cast<int64_t>(rest_.capacity());
  for (const ChatEvent& event : events_) {
    bytes += static_cast<int64_t>(sizeof(ChatEvent) + event.text.capacity() +
                                  event.call.arguments.capacity());
  }
  return bytes;
}

void ChatAnswer::run() {
  for (bool more = true; more;) {
    switch (state_) {
      case State::kStart:
        more = start();
        break;
      case State::kThinking:
        more = think();
        break;
      case State::kContent:
        more = say();
        break;
      case State::kCall:
        more = call();
        break;
      case State::kDropped:
        rest_.clear();
        more = false;
        break;
    }
  }
}

// Drops the prompt's part of a tag that turns out not to be one.
void ChatAnswer::drop_prompt(std::string_view tag) {
  if (taken_ >= 0) return;
  const bool may_become = rest_.starts_with(tag) || (!ended_ && tag.starts_with(rest_));
  if (!may_become) drop(static_cast<size_t>(-taken_));
}

bool ChatAnswer::start() {
  drop_prompt(kThink);
  drop(leading_spaces(rest_));
  if (rest_.starts_with(kThink)) {
    drop(kThink.size());
    state_ = State::kThinking;
    return true;
  }
  if (!ended_ && kThink.starts_with(rest_)) return false;
  state_ = State::kContent;
  return true;
}

bool ChatAnswer::think() {
  drop_prompt(kThought);
  if (!spoke_) drop(leading_spaces(rest_));
  const size_t close = rest_.find(kThought);
  const bool closed = close != std::string::npos;
  const size_t length = closed ? close : rest_.size() - (ended_ ? 0 : begun(rest_, kThought));
  emit(ChatEvent::Kind::kThinking, without_spaces(std::string_view(rest_).substr(0, length)));
  if (closed) {
    drop(rest_.find(kThought) + kThought.size());
    state_ = State::kContent;
    spoke_ = false;
  } else if (ended_) {
    drop(rest_.size());
  }
  thinking_bytes_ = std::max<int64_t>(0, taken_);
  return closed;
}

bool ChatAnswer::say() {
  if (!spoke_) drop(leading_spaces(rest_));
  size_t open = std::string::npos;
  size_t held = 0;
  if (options_.form) {
    for (const CallTags& tags : tags_of(*options_.form)) {
      held = std::max(held, begun(rest_, tags.open));
      const size_t at = rest_.find(tags.open);
      if (at >= open) continue;
      open = at;
      tags_ = tags;
    }
  }
  if (open != std::string::npos) {
    emit(ChatEvent::Kind::kContent, without_spaces(std::string_view(rest_).substr(0, open)));
    end_.emplace(*options_.form, tags_.close);
    state_ = State::kCall;
    return true;
  }
  const size_t length = rest_.size() - (ended_ ? 0 : held);
  const size_t free = without_spaces(std::string_view(rest_).substr(0, length));
  emit(ChatEvent::Kind::kContent, ended_ ? length : free);
  return false;
}

// rest_ has spaces, the opening tag and the part of the call that has arrived.
bool ChatAnswer::call() {
  const size_t body = rest_.find(tags_.open) + tags_.open.size();
  const std::string_view text = std::string_view(rest_).substr(body);
  size_t end = end_->find(text);
  const bool closed = end != std::string_view::npos;
  if (!closed && !ended_ && std::ssize(text) <= kMaxCallBytes) return false;
  if (!closed) end = text.size();
  const size_t after = body + end + (closed ? tags_.close.size() : 0);
  const OrderedJson none = OrderedJson::array();
  auto calls = read_calls(text.substr(0, end), *options_.form,
                          options_.tools == nullptr ? none : *options_.tools);
  state_ = State::kContent;
  if (!calls) {
    emit(ChatEvent::Kind::kContent, after);
    return true;
  }
  drop(after);
  spoke_ = false;
  for (ToolCall& call : *calls) {
    events_.push_back({.kind = ChatEvent::Kind::kCall, .call = std::move(call), .end = taken_});
    if (!options_.one_call) continue;
    state_ = State::kDropped;
    break;
  }
  return true;
}

void ChatAnswer::emit(ChatEvent::Kind kind, size_t bytes) {
  if (bytes == 0) return;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({.kind = kind});
  events_.back().text.append(rest_, 0, bytes);
  spoke_ = true;
  drop(bytes);
  events_.back().end = taken_;
}

void ChatAnswer::drop(size_t bytes) {
  rest_.erase(0, bytes);
  taken_ += static_cast<int64_t>(bytes);
}

}  // namespace runnel
