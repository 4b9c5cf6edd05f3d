#include "server/host/mishaps.h"

#include <string>
#include <utility>

namespace runnel {
namespace {

constexpr auto kBetweenLines = std::chrono::seconds(1);

}  // namespace

void Mishaps::note(const std::exception& error) noexcept {
  try {
    std::lock_guard lock(mutex_);
    ++unlogged_;
    const TimePoint now = clock_.now();
    if (now < next_) return;
    next_ = now + kBetweenLines;
    log_.warn("mishap",
              {{"message", std::string(error.what())}, {"times", std::exchange(unlogged_, 0)}});
  } catch (const std::exception&) {  // there is not enough memory for the log line either
  }
}

}  // namespace runnel
