// SIGTERM, SIGINT and SIGHUP as something to wait for: no handler runs in the middle of anything.
// SIGHUP stops the process, or asks it to read its configuration again.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace runnel {

class StopSignal {
 public:
  // Blocks the signals in this thread and in threads that it starts: make it before any of them.
  // SIGHUP is left alone where it is ignored, as under nohup. A second signal that stops ends the
  // process at once, with exit code 128 + its number, unless it is spared.
  explicit StopSignal(bool hang_up_reloads = false);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  // Waits for the first that stops, or for SIGHUP that does not, no longer than `at_most`. Gives
  // the number of the first that stops; 0 when none has come.
  int wait(Duration at_most);
  // True once for what has come of SIGHUP that asks for a reload.
  bool take_reload();
  // True once the first has come.
  bool raised();

  // Whether the second signal that stops is noted for wait_second(), and does not end the process.
  void spare_second(bool spared);
  // Waits for the second signal, no longer than `at_most`; true once it has come. Only while it is
  // spared.
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
