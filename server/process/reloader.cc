#include "server/process/reloader.h"

#include <chrono>
#include <memory>
#include <utility>

#include "base/within_memory.h"

namespace runnel {
namespace {

Status stopping() { return {Code::kUnavailable, "the server is shutting down"}; }

}  // namespace

Status Reloader::ask(ReloadDone done) {
  std::lock_guard lock(mutex_);
  if (stopped_) return stopping();
  if (running_) {
    Status busy(Code::kAborted, "another reload is under way; ask again when it has ended");
    return busy.with_retry_after(std::chrono::seconds(1));
  }
  done_ = std::move(done);
  begin();
  return {};
}

void Reloader::ask_again() {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  if (running_) {
    again_ = true;
  } else {
    begin();
  }
}

void Reloader::stop() {
  ReloadDone done;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    done = std::exchange(done_, nullptr);
  }
  if (done) done(stopping());
}

void Reloader::begin() {
  running_ = true;
  thread_.post<&Reloader::run>(std::shared_ptr<Reloader>(std::shared_ptr<void>(), this));
}

void Reloader::run() {
  bool stopped = false;
  {
    std::lock_guard lock(mutex_);
    stopped = stopped_;
  }
  const Result<ReloadReport> report = stopped ? stopping() : within_memory(reload_);
  ReloadDone done;
  {
    std::lock_guard lock(mutex_);
    done = std::exchange(done_, nullptr);
    running_ = false;
    if (std::exchange(again_, false) && !stopped_) begin();
  }
  if (done) done(report);
}

}  // namespace runnel
