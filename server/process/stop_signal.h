// SIGTERM, SIGINT and SIGHUP as something to wait for: no handler runs in the middle of anything.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace runnel {

class StopSignal {
 public:
  // Blocks the signals in this thread and those that it starts: make it before any of them. SIGHUP
  // is left alone where it is ignored, as under nohup. A second signal ends the process at once,
  // with exit code 128 + its number.
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  // Waits for the first, no longer than `at_most`, and gives its number; 0 when none came.
  int wait(Duration at_most);
  // True once the first has come.
  bool raised();

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable came_;
  int signal_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace runnel
