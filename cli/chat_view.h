// Shows the answers of a conversation while they arrive.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"

namespace runnel {

// On a terminal with colours, thinking is dim and is shown without its tags. Elsewhere answers are
// printed with the tags. The terminal wraps long lines.
class ChatView {
 public:
  // `stop_text` ends answers, and is not shown; empty: a token ends them. `console` must outlive
  // the object.
  ChatView(Console& console, const std::string& stop_text);

  // Begins an answer. `thinking`: it begins inside <think>.
  void begin(bool thinking);
  // Adds the next part of the answer, which may be split at any byte.
  void add(std::string_view text);
  // Ends the answer.
  void end();

 private:
  void print(std::string_view text);
  void show_thinking(bool thinking);

  Console& console_;
  const bool dims_;
  std::vector<std::string> marks_;  // texts that are not shown: the stop text, and tags
  std::string held_;                // text that may be the beginning of a mark
  bool thinking_ = false, over_ = false;
  bool at_start_ = true;     // only white space has arrived, which is not shown
  bool line_ended_ = false;  // the last printed character ended the line
};

}  // namespace runnel
