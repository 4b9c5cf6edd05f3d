#include "cli/chat_input.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/limits.h"

namespace runnel {
namespace {

constexpr int kPasteMs = 50;  // a pasted text has ended if nothing comes for this time

}  // namespace

ChatInput::ChatInput(int file, int interrupt)
    : file_(file), interrupt_(interrupt), terminal_(isatty(file) == 1) {}

std::optional<std::string> ChatInput::next() {
  while (message_end() == std::string::npos) {
    if (ended_ || std::ssize(text_) > limits::kMessageBytes.max) return rest();
    std::array<pollfd, 2> files = {pollfd{file_, POLLIN, 0}, pollfd{interrupt_, POLLIN, 0}};
    if (poll(files.data(), files.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return std::nullopt;
    }
    if (files[1].revents != 0) return std::nullopt;
    searched_ = text_.size();
    if (!read_some()) return rest();
    if (terminal_) read_pasted();
  }
  const size_t end = message_end();
  searched_ = 0;
  std::string message = text_.substr(0, end);
  text_.erase(0, end + 1);
  if (!terminal_ && message.ends_with('\r')) message.pop_back();
  return message;
}

// Returns what has been read: the last line of the input if no line break ends it, or a piece of a
// line that is too long.
std::optional<std::string> ChatInput::rest() {
  searched_ = 0;
  if (text_.empty()) return std::nullopt;
  return std::exchange(text_, "");
}

size_t ChatInput::message_end() const {
  if (!terminal_) return text_.find('\n', searched_);
  return text_.ends_with('\n') ? text_.size() - 1 : std::string::npos;
}

bool ChatInput::read_some() {
  std::array<char, 4096> piece{};
  const ssize_t bytes = read(file_, piece.data(), piece.size());
  if (bytes < 0 && errno == EINTR) return true;
  if (bytes <= 0) return false;
  text_.append(piece.data(), static_cast<size_t>(bytes));
  return true;
}

// A terminal passes only whole lines to the program, and the last line of a pasted text often has
// no line break. So this function turns line mode off for a moment and reads all text that has
// come. When the user then presses Enter, that ends the last line.
void ChatInput::read_pasted() {
  termios by_line{};
  if (tcgetattr(file_, &by_line) != 0) return;
  termios at_once = by_line;
  at_once.c_lflag &= ~tcflag_t{ICANON};
  at_once.c_cc[VMIN] = 0;
  at_once.c_cc[VTIME] = 0;
  tcsetattr(file_, TCSANOW, &at_once);
  pollfd waiting = {file_, POLLIN, 0};
  while (poll(&waiting, 1, kPasteMs) == 1 && read_some()) {
  }
  tcsetattr(file_, TCSANOW, &by_line);
  if (text_.empty() || text_.back() != static_cast<char>(by_line.c_cc[VEOF])) return;
  text_.pop_back();
  ended_ = true;
}

}  // namespace runnel
