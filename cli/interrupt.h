// Ctrl-C and SIGTERM as a call, without a signal handler.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace runnel {

// While it lives, SIGINT and SIGTERM call `on_signal` once, from a thread of its own; a second
// signal ends the process at once with 130. Make it before any other thread: threads inherit that
// the signals are blocked.
class Interrupt {
 public:
  explicit Interrupt(std::function<void()> on_signal);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool fired() const { return fired_.load(); }

 private:
  void watch();

  std::function<void()> on_signal_;
  std::atomic<bool> fired_{false};
  sigset_t before_{};
  int signals_ = -1, stop_ = -1;  // file descriptors: of the signals, and of the wish to end
  std::thread thread_;
};

}  // namespace runnel
