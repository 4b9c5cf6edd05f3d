#include "cli/chat_view.h"

#include <algorithm>

#include "base/text.h"

namespace runnel {
namespace {

constexpr const char* kThinks = "<think>";
constexpr const char* kThought = "</think>";

// The number of bytes at the end of `text` that may be the beginning of `mark`.
size_t begun(std::string_view text, std::string_view mark) {
  size_t bytes = std::min(text.size(), mark.size() - 1);
  while (!mark.starts_with(text.substr(text.size() - bytes))) --bytes;
  return bytes;
}

}  // namespace

ChatView::ChatView(Console& console, const std::string& stop_text)
    : console_(console), dims_(console.out_terminal && console.colour) {
  if (!stop_text.empty()) marks_.push_back(stop_text);
  if (dims_) marks_.insert(marks_.end(), {kThinks, kThought});
}

void ChatView::begin(bool thinking) {
  held_.clear();
  over_ = false;
  at_start_ = true;
  line_ended_ = false;
  show_thinking(thinking);
}

void ChatView::add(std::string_view text) {
  if (over_) return;
  held_ += text;
  while (true) {
    size_t at = std::string::npos;
    std::string found;
    size_t begins = 0;
    for (const std::string& mark : marks_) {
      if (const size_t place = held_.find(mark); place < at) {
        at = place;
        found = mark;
      }
      begins = std::max(begins, begun(held_, mark));
    }
    const size_t shown = found.empty() ? held_.size() - begins : at;
    print(std::string_view(held_).substr(0, shown));
    held_.erase(0, shown + found.size());
    if (found.empty()) break;
    over_ = found != kThinks && found != kThought;
    if (over_) break;
    show_thinking(found == kThinks);
  }
  console_.out.flush();
}

void ChatView::end() {
  if (!over_) print(held_);
  show_thinking(false);
  if (!line_ended_) console_.out << '\n';
  console_.out.flush();
}

void ChatView::print(std::string_view text) {
  if (at_start_) text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.empty()) return;
  at_start_ = false;
  line_ended_ = text.back() == '\n';
  console_.out << tame(text);
}

// Content after thinking begins on a new line.
void ChatView::show_thinking(bool thinking) {
  if (!dims_ || thinking == thinking_) return;
  if (!thinking && !at_start_ && !line_ended_) print("\n");
  console_.out << (thinking ? "\x1b[2m" : "\x1b[0m");
  thinking_ = thinking;
  at_start_ = true;
}

}  // namespace runnel
