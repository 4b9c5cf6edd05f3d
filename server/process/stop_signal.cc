#include "server/process/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

namespace runnel {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  struct sigaction hang_up = {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

StopSignal::StopSignal(bool hang_up_reloads) : hang_up_reloads_(hang_up_reloads) {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes sigwait; blocked in other threads
  thread_.join();
}

void StopSignal::watch() {
  const sigset_t set = stop_signals();
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      if (signal == SIGHUP && hang_up_reloads_) {
        reload_ = true;
      } else if (signal_ == 0) {
        signal_ = signal;
      } else if (second_spared_ && !second_came_) {
        second_came_ = true;
      } else {
        _exit(128 + signal);
      }
    }
    came_.notify_all();
  }
}

int StopSignal::wait(Duration at_most) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, at_most, [&] { return signal_ != 0 || reload_; });
  return signal_;
}

bool StopSignal::take_reload() {
  std::lock_guard lock(mutex_);
  return std::exchange(reload_, false);
}

bool StopSignal::raised() {
  std::lock_guard lock(mutex_);
  return signal_ != 0;
}

void StopSignal::spare_second(bool spared) {
  std::lock_guard lock(mutex_);
  second_spared_ = spared;
}

bool StopSignal::wait_second(Duration at_most) {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, at_most, [&] { return second_came_; });
}

}  // namespace runnel
