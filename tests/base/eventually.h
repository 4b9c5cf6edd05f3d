// Waits until another thread or process has reached a state.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace runnel {

// The longest time that a test waits for an event. Only a test that hangs reaches it, however busy
// the machine is.
inline constexpr std::chrono::minutes kPatience{10};

// Calls `holds` repeatedly until it returns true, for at most kPatience.
inline bool eventually(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace runnel
