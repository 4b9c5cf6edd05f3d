// Waits until another thread or process has reached a state.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace runnel {

// Calls `holds` repeatedly until it returns true, for at most a minute.
inline bool eventually(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace runnel
