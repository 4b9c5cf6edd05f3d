#include "server/host/process_figures.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

namespace runnel {
namespace {

TEST(ProcessFigures, DescribeThisProcess) {
  const std::vector<char> memory(64 << 20, 1);
  const ProcessFigures figures = process_figures();
  EXPECT_GT(figures.resident_bytes, std::ssize(memory));
  EXPECT_GT(figures.virtual_bytes, figures.resident_bytes);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(figures.start_seconds, now + 1);
  EXPECT_GT(figures.start_seconds, now - 3600);
  EXPECT_GT(figures.cpu_seconds, 0);
  EXPECT_LT(figures.cpu_seconds, 3600);
}

TEST(ProcessFigures, CountFiles) {
  const int64_t before = process_figures().open_files;
  const int file = dup(0);
  EXPECT_EQ(process_figures().open_files, before + 1);
  close(file);
  EXPECT_GE(process_figures().most_files, before);
}

}  // namespace
}  // namespace runnel
