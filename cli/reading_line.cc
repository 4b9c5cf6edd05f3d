#include "cli/reading_line.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace runnel {
namespace {

constexpr std::chrono::milliseconds kTick{500};

void draw_until(const std::stop_token& stop, Console& console, const std::string& what) {
  std::mutex mutex;
  std::condition_variable_any wake;
  const TimePoint start = console.clock.now();
  bool drawn = false;
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, stop, kTick, [&] { return stop.stop_requested(); })) {
    const auto seconds = std::chrono::duration<double>(console.clock.now() - start).count();
    console.err << "\r\x1b[Kreading " << what << ", " << clock_text(seconds) << std::flush;
    drawn = true;
  }
  if (drawn) console.err << "\r\x1b[K" << std::flush;
}

}  // namespace

ReadingLine::ReadingLine(Console& console, const std::string& what) {
  if (!console.err_terminal) return;
  thread_ = std::jthread(
      [&console, what](const std::stop_token& stop) { draw_until(stop, console, what); });
}

ReadingLine::~ReadingLine() = default;

}  // namespace runnel
