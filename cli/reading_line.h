// Shows on a terminal that a server reads a prompt, which it does without telling how far it is.
#pragma once

#include <string>
#include <thread>

#include "cli/console.h"

namespace runnel {

// While it lives, a thread of its own draws "reading WHAT, 0:12" on err, from half a second on;
// nobody else may write there. Nothing is drawn where err is no terminal.
class ReadingLine {
 public:
  // `console` outlives the object.
  ReadingLine(Console& console, const std::string& what);
  ~ReadingLine();
  ReadingLine(const ReadingLine&) = delete;
  ReadingLine& operator=(const ReadingLine&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace runnel
