// Shows the progress of a long call on one line.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "base/clock.h"

namespace runnel {

struct Progress {
  int64_t done = 0, total = 0;  // total 0: unknown
  double seconds = 0;           // since the start
};

struct BarStyle {
  int columns = 80;  // of the terminal; the line is shorter
  bool colour = false;
  bool utf8 = false;
};

// "0:07", "1:02:03".
std::string clock_text(double seconds);

// The line, without a line end: a bar, percent, rate in `unit` ("values") per second and time left.
// Parts that do not fit are left out, the percentage last.
std::string render_progress(const Progress& progress, const std::string& unit,
                            const BarStyle& style);

// Shows progress on a stream. A terminal has one line, which is redrawn at most 10 times a second.
// Elsewhere a plain line is written every few seconds.
class ProgressLine {
 public:
  struct Options {
    bool terminal = false, colour = false, utf8 = false;
    std::function<int()> columns;  // called at each drawing, because the terminal may be resized
  };

  // All references must outlive the object. The time counts from its construction.
  ProgressLine(std::ostream& out, const Clock& clock, std::string unit, Options options);

  // Draws if it is time for the next drawing.
  void update(int64_t done, int64_t total);

  // Removes the line from the terminal. To be called before anything else is written there.
  void clear();

  double seconds() const;

 private:
  std::ostream& out_;
  const Clock& clock_;
  const std::string unit_;
  const Options options_;
  const TimePoint start_;
  TimePoint drawn_;
  bool visible_ = false;
};

}  // namespace runnel
