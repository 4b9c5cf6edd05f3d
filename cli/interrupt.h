// Ctrl-C and SIGTERM as a call, without a signal handler.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace runnel {

// While it lives, SIGINT and SIGTERM call `on_signal` once, from a thread of its own; a second
// signal ends the process at once with 130, unless rearm() came between. Make it before any other
// thread: threads inherit that the signals are blocked.
class Interrupt {
 public:
  explicit Interrupt(std::function<void()> on_signal);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool fired() const { return fired_.load(); }
  bool terminated() const { return terminated_.load(); }  // by SIGTERM
  // A file descriptor that is readable while fired().
  int file() const { return fired_file_; }
  // Forgets the signal: the next one calls `on_signal` again.
  void rearm();

 private:
  void watch();

  std::function<void()> on_signal_;
  std::mutex mutex_;  // of a signal from fired_ to file(), so that rearm() forgets all of it
  std::atomic<bool> fired_{false}, terminated_{false};
  sigset_t before_{};
  // File descriptors: of the signals, of the wish to end, and that of file().
  int signals_ = -1, stop_ = -1, fired_file_ = -1;
  std::thread thread_;
};

}  // namespace runnel
