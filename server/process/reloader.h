// Reloads, one at a time, on a thread of their own: the serving threads wait for none.
#pragma once

#include <functional>
#include <mutex>

#include "base/status.h"
#include "server/host/reload_report.h"
#include "server/host/task_thread.h"

namespace runnel {

class Reloader {
 public:
  // `reload` does the work; it should end soon after stop().
  explicit Reloader(std::function<Result<ReloadReport>()> reload) : reload_(std::move(reload)) {}
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;
  // Stops, and waits for a reload that runs.
  ~Reloader() { stop(); }

  // As AskReload.
  Status ask(ReloadDone done);
  // Has a reload done with nobody to tell: now, or once more after the one that runs, which may
  // have read the configuration before it changed.
  void ask_again();
  // From here on nothing begins, and whoever waits is told that it ends.
  void stop();

 private:
  void begin();  // with mutex_ held
  void run();

  const std::function<Result<ReloadReport>()> reload_;
  std::mutex mutex_;
  bool stopped_ = false;
  bool running_ = false;
  bool again_ = false;
  ReloadDone done_;  // of whoever has asked for the one that runs
  TaskThread thread_;
};

}  // namespace runnel
