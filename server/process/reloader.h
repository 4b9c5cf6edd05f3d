// Runs reloads, one at a time, on a separate thread, so that serving threads do not wait for them.
#pragma once

#include <functional>
#include <mutex>

#include "base/status.h"
#include "server/host/reload_report.h"
#include "server/host/task_thread.h"

namespace runnel {

class Reloader {
 public:
  // `reload` does the work. It should end soon after stop().
  explicit Reloader(std::function<Result<ReloadReport>()> reload) : reload_(std::move(reload)) {}
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;
  // Stops, and waits for a reload that runs.
  ~Reloader() { stop(); }

  // As AskReload.
  Status ask(ReloadDone done);
  // Starts a reload without a callback. If a reload runs, another one follows it, because the first
  // one may have read the configuration before it changed.
  void ask_again();
  // Starts no more reloads. The callback of a running reload gets the status that the server shuts
  // down.
  void stop();

 private:
  void begin();  // with mutex_ held
  void run();

  const std::function<Result<ReloadReport>()> reload_;
  std::mutex mutex_;
  bool stopped_ = false;
  bool running_ = false;
  bool again_ = false;
  ReloadDone done_;  // of the reload that runs
  TaskThread thread_;
};

}  // namespace runnel
