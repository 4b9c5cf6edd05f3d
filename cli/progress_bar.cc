#include "cli/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kLeastBar = 10;
constexpr int kMostBar = 48;
constexpr auto kTerminalPeriod = milliseconds(100);
constexpr auto kPlainPeriod = seconds(5);

std::string repeat(const std::string& what, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += what;
  return out;
}

// `cells` columns wide, whatever the encoding.
std::string bar(double part, int cells, const BarStyle& style) {
  const int full = std::clamp(static_cast<int>(std::floor(part * cells)), 0, cells);
  const std::string done = repeat(style.utf8 ? "\u2588" : "#", full);
  const std::string left = repeat(style.utf8 ? "\u2591" : ".", cells - full);
  if (!style.colour) return style.utf8 ? done + left : "[" + done + left + "]";
  const std::string body = "\x1b[36m" + done + "\x1b[2m" + left + "\x1b[0m";
  return style.utf8 ? body : "[" + body + "]";
}

std::string rate_text(double rate) {
  return rate >= 100 ? with_commas(std::llround(rate)) : fixed(rate, 1);
}

}  // namespace

std::string clock_text(double seconds) {
  const int64_t whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  const auto two = [](int64_t number) {
    std::string digits = std::to_string(number);
    if (number < 10) digits.insert(digits.begin(), '0');
    return digits;
  };
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  if (hours == 0) return std::to_string(minutes) + ":" + two(whole % 60);
  return std::to_string(hours) + ":" + two(minutes) + ":" + two(whole % 60);
}

std::string render_progress(const Progress& progress, const std::string& unit,
                            const BarStyle& style) {
  const int room = style.columns - 1;  // a full line would wrap on some terminals
  const double rate = progress.seconds > 0 ? progress.done / progress.seconds : 0;
  const std::string speed = rate_text(rate) + " " + unit + "/s";
  if (progress.total <= 0) {
    const std::string count = with_commas(progress.done) + " " + unit;
    const std::string both = count + "  " + speed;
    return static_cast<int>(both.size()) <= room ? both : count.substr(0, std::max(room, 0));
  }
  const double part = std::clamp(
      static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0);
  const std::string percent = std::to_string(static_cast<int>(part * 100)) + "%";
  std::string line = std::string(4 - std::min<size_t>(percent.size(), 4), ' ') + percent;
  const auto add = [&](const std::string& more) {
    if (static_cast<int>(line.size() + more.size()) <= room) line += more;
  };
  add("  " + speed);
  if (rate > 0 && progress.done < progress.total) {
    add("  " + clock_text((progress.total - progress.done) / rate) + " left");
  }
  const int brackets = style.utf8 ? 0 : 2;
  const int cells = std::min(room - static_cast<int>(line.size()) - 1 - brackets, kMostBar);
  if (cells >= kLeastBar) return bar(part, cells, style) + " " + line;
  return line.substr(0, std::max(room, 0));
}

ProgressLine::ProgressLine(std::ostream& out, const Clock& clock, std::string unit, Options options)
    : out_(out),
      clock_(clock),
      unit_(std::move(unit)),
      options_(std::move(options)),
      start_(clock.now()),
      drawn_(start_) {}

void ProgressLine::update(int64_t done, int64_t total) {
  const TimePoint now = clock_.now();
  const Duration since = now - drawn_;
  if (options_.terminal ? since < kTerminalPeriod : since < kPlainPeriod) return;
  drawn_ = now;
  const Progress progress{done, total, seconds()};
  if (!options_.terminal) {
    out_ << render_progress(progress, unit_, {.columns = kLeastBar + 40}) << '\n' << std::flush;
    return;
  }
  const BarStyle style{options_.columns ? options_.columns() : 80, options_.colour, options_.utf8};
  out_ << "\r\x1b[K" << render_progress(progress, unit_, style) << std::flush;
  visible_ = true;
}

void ProgressLine::clear() {
  if (!visible_) return;
  out_ << "\r\x1b[K" << std::flush;
  visible_ = false;
}

double ProgressLine::seconds() const { return duration<double>(clock_.now() - start_).count(); }

}  // namespace runnel
