// Reads the messages of a conversation from a terminal or a pipe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace runnel {

class ChatInput {
 public:
  // Reads the file descriptor `file` until the file descriptor `interrupt` is readable.
  ChatInput(int file, int interrupt);

  // The next line, without its end. Lines that are pasted together into a terminal are one message.
  // A line that is longer than any server reads (limits::kMessageBytes) is given in pieces. None at
  // the end of the file, and after an interrupt.
  std::optional<std::string> next();

 private:
  std::optional<std::string> rest();
  size_t message_end() const;  // index in text_; npos: more must be read
  bool read_some();            // false: at the end of the file, or interrupted
  void read_pasted();

  const int file_, interrupt_;
  const bool terminal_;
  std::string text_;     // read, but not yet returned
  size_t searched_ = 0;  // bytes of text_ that are known to have no line break
  bool ended_ = false;   // by a Ctrl-D after text
};

}  // namespace runnel
