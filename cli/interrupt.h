// Calls a function on Ctrl-C or SIGTERM, without a signal handler.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace runnel {

// While the object exists, the first SIGINT or SIGTERM calls `on_signal`, from a separate thread. A
// second signal ends the process at once with exit code 130, unless rearm() was called between the
// two. Create the object before any other thread, because threads inherit the blocked signals.
class Interrupt {
 public:
  explicit Interrupt(std::function<void()> on_signal);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool fired() const { return fired_.load(); }
  bool terminated() const { return terminated_.load(); }  // by SIGTERM
  // A file descriptor that is readable while fired() is true.
  int file() const { return fired_file_; }
  // Forgets the signal: the next one calls `on_signal` again.
  void rearm();
  // While this is set, the first signal already ends the process. For work that `on_signal` cannot
  // end, such as reading standard input.
  void end_at_once(bool at_once);
  // A text that restores the terminal. It is written to standard output before a signal ends the
  // process. It must have static storage; null: none.
  void restores(const char* text) { restores_ = text; }

 private:
  void watch();
  [[noreturn]] void end() const;

  std::function<void()> on_signal_;
  std::mutex mutex_;  // held while a signal is handled, so that rearm() resets all of it
  std::atomic<bool> fired_{false}, terminated_{false}, at_once_{false};
  std::atomic<const char*> restores_{nullptr};
  sigset_t before_{};
  // File descriptors: of the signals, of the request to stop the thread, and the one that file()
  // returns.
  int signals_ = -1, stop_ = -1, fired_file_ = -1;
  std::thread thread_;
};

}  // namespace runnel
