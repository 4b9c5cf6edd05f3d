// Shows on a terminal that the server is reading a prompt. The server does not report how far it
// has read.
#pragma once

#include <string>
#include <thread>

#include "cli/console.h"

namespace runnel {

// While the object exists, a separate thread draws "reading WHAT, 0:12" on err, beginning after
// half a second. Nothing else may write there. Nothing is drawn if err is not a terminal.
class ReadingLine {
 public:
  // `console` must outlive the object.
  ReadingLine(Console& console, const std::string& what);
  ~ReadingLine();
  ReadingLine(const ReadingLine&) = delete;
  ReadingLine& operator=(const ReadingLine&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace runnel
