#include "cli/progress_bar.h"

#include <gmock/gmock.h>

#include <sstream>

namespace runnel {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// The columns of a line on a terminal: none for escape sequences, one for a UTF-8 character.
int columns_of(const std::string& line) {
  int columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (line[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80) {
      ++columns;
    }
  }
  return columns;
}

TEST(ProgressBar, ShowsPercentRateAndTimeLeft) {
  const std::string line =
      render_progress({.done = 3000, .total = 12000, .seconds = 2}, "values", {.columns = 60});
  EXPECT_EQ(line, "[######...................]  25%  1,500 values/s  0:06 left");
  EXPECT_EQ(columns_of(line), 59);
}

TEST(ProgressBar, NeverFillsTheTerminal) {
  for (int columns = 0; columns < 160; ++columns) {
    for (const bool utf8 : {false, true}) {
      for (const int64_t total : {0, 12000}) {
        for (const int64_t done : {0, 1, 5999, 12000, 13000}) {
          const std::string line =
              render_progress({.done = done, .total = total, .seconds = 2.5}, "values",
                              {.columns = columns, .colour = true, .utf8 = utf8});
          EXPECT_LE(columns_of(line), std::max(columns - 1, 0)) << line;
        }
      }
    }
  }
}

TEST(ProgressBar, NarrowTerminalsKeepThePercentage) {
  const Progress progress{.done = 50, .total = 100, .seconds = 1};
  EXPECT_EQ(render_progress(progress, "values", {.columns = 5}), " 50%");
  EXPECT_THAT(render_progress(progress, "values", {.columns = 25}),
              HasSubstr("50%  50.0 values/s"));
}

TEST(ProgressBar, IsFullOnlyAtTheEnd) {
  EXPECT_THAT(render_progress({99999, 100000, 1}, "values", {}), HasSubstr(".]  99%"));
  EXPECT_THAT(render_progress({100000, 100000, 1}, "values", {}), HasSubstr("#] 100%"));
  EXPECT_THAT(render_progress({0, 100000, 0}, "values", {}), HasSubstr("   0%  0.0 values/s"));
}

TEST(ProgressBar, ShowsOnlyTheCountIfTheTotalIsUnknown) {
  EXPECT_EQ(render_progress({12340, 0, 10}, "values", {}), "12,340 values  1,234 values/s");
}

TEST(ProgressBar, WritesTimes) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(7.4), "0:07");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(-1), "0:00");
  EXPECT_EQ(clock_text(1e30), "277777:46:40");
}

TEST(ProgressLine, RedrawsATerminalTenTimesASecondAtMost) {
  std::ostringstream out;
  Clock clock((TimePoint()));
  ProgressLine line(out, clock, "values", {.terminal = true, .columns = [] { return 80; }});
  for (int i = 0; i < 1000; ++i) {
    clock.advance(milliseconds(1));
    line.update(i, 1000);
  }
  const std::string drawn = out.str();
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\r'), 10);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 0);
  line.clear();
  EXPECT_THAT(out.str(), testing::EndsWith("\r\x1b[K"));
  const size_t length = out.str().size();
  line.clear();
  EXPECT_EQ(out.str().size(), length) << "nothing is left to clear";
}

TEST(ProgressLine, WritesPlainLinesRarelyElsewhere) {
  std::ostringstream out;
  Clock clock((TimePoint()));
  ProgressLine line(out, clock, "values", {});
  for (int i = 0; i < 200; ++i) {
    clock.advance(milliseconds(100));
    line.update(i, 1000);
  }
  line.clear();
  const std::string drawn = out.str();
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 4);
  EXPECT_EQ(drawn.find('\r'), std::string::npos);
  EXPECT_EQ(drawn.find('\x1b'), std::string::npos);
  EXPECT_DOUBLE_EQ(line.seconds(), 20);
}

TEST(ProgressLine, FollowsAResizedTerminalAndUsesNoColourUnlessAsked) {
  std::ostringstream out;
  Clock clock((TimePoint()));
  int columns = 80;
  ProgressLine line(out, clock, "values", {.terminal = true, .columns = [&] { return columns; }});
  clock.advance(milliseconds(200));
  line.update(5, 10);
  EXPECT_THAT(out.str(), HasSubstr("["));
  EXPECT_EQ(out.str().find("\x1b[36m"), std::string::npos);
  columns = 6;
  clock.advance(milliseconds(200));
  out.str("");
  line.update(5, 10);
  EXPECT_EQ(out.str(), "\r\x1b[K 50%");
}

}  // namespace
}  // namespace runnel
