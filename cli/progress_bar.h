// How far a long call is, on one line.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "base/clock.h"

namespace runnel {

struct Progress {
  int64_t done = 0, total = 0;  // total 0: no end is known
  double seconds = 0;           // since the start
};

struct BarStyle {
  int columns = 80;  // of the terminal; the line stays below
  bool colour = false;
  bool utf8 = false;
};

// "0:07", "1:02:03".
std::string clock_text(double seconds);

// The line, without a line end: a bar, percent, rate in `unit` ("values") per second and time left.
// What does not fit the columns is left out, the percentage last.
std::string render_progress(const Progress& progress, const std::string& unit,
                            const BarStyle& style);

// Shows progress on a stream: on a terminal one line drawn over and over, at most 10 times a
// second; elsewhere a plain line every few seconds.
class ProgressLine {
 public:
  struct Options {
    bool terminal = false, colour = false, utf8 = false;
    std::function<int()> columns;  // asked at each drawing, so that a resized terminal is served
  };

  // All references outlive the object. The time counts from here.
  ProgressLine(std::ostream& out, const Clock& clock, std::string unit, Options options);

  // Draws if it is time to.
  void update(int64_t done, int64_t total);

  // Takes the bar off the terminal; call before anything else is written there.
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
