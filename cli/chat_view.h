// Shows the answers of a conversation while they come.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"

namespace runnel {

// On a terminal with colours thinking is dim, without its tags. Elsewhere answers are printed with
// them. Lines are left to the terminal to wrap.
class ChatView {
 public:
  // `stop_text` ends answers, and is not shown; empty: a token ends them. `console` outlives the
  // object.
  ChatView(Console& console, const std::string& stop_text);

  // An answer begins; `thinking`: inside <think>.
  void begin(bool thinking);
  // The next part of it, cut anywhere.
  void add(std::string_view text);
  // The answer has ended.
  void end();

 private:
  void print(std::string_view text);
  void show_thinking(bool thinking);

  Console& console_;
  const bool dims_;
  std::vector<std::string> marks_;  // that are not shown: the text that ends an answer, and tags
  std::string held_;                // it may be the beginning of a mark
  bool thinking_ = false, over_ = false;
  bool at_start_ = true;     // no more than white space has come, which is not shown
  bool line_ended_ = false;  // by the last character printed
};

}  // namespace runnel
