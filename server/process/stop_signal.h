// Waits for SIGTERM, SIGINT and SIGHUP, without a handler that interrupts other code. SIGHUP stops
// the process, or makes it read its configuration again.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace runnel {

class StopSignal {
 public:
  // Blocks the signals in this thread and in the threads that it starts, so construct it before any
  // thread. If SIGHUP is ignored, as under nohup, it stays ignored. A second stop signal ends the
  // process at once with exit code 128 + its number, unless spare_second() was called.
  explicit StopSignal(bool hang_up_reloads = false);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  // Waits for the first stop signal, or for a SIGHUP that asks for a reload, for at most `at_most`.
  // Returns the number of the first stop signal; 0 if there was none.
  int wait(Duration at_most);
  // Whether SIGHUP has asked for a reload since the last call.
  bool take_reload();
  // Whether there was a stop signal.
  bool raised();

  // `spared`: a second stop signal does not end the process, but is noted for wait_second().
  void spare_second(bool spared);
  // Waits for the second stop signal, for at most `at_most`. True once there was one. Only while
  // the second signal is spared.
  bool wait_second(Duration at_most);

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable came_;
  const bool hang_up_reloads_;
  int signal_ = 0;
  bool second_spared_ = false;
  bool second_came_ = false;
  bool reload_ = false;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace runnel
