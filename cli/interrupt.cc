#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cli/console.h"

namespace runnel {

Interrupt::Interrupt(std::function<void()> on_signal) : on_signal_(std::move(on_signal)) {
  sigset_t set{};
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  check(pthread_sigmask(SIG_BLOCK, &set, &before_) == 0, "signals can be blocked");
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  fired_file_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  check(signals_ >= 0 && stop_ >= 0 && fired_file_ >= 0, "there are file descriptors for signals");
  thread_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  check(eventfd_write(stop_, 1) == 0, "the watching thread can be told to end");
  thread_.join();
  close(signals_);
  close(stop_);
  close(fired_file_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::rearm() {
  const std::lock_guard lock(mutex_);
  fired_ = false;
  eventfd_t count = 0;
  eventfd_read(fired_file_, &count);  // fails if it has not fired
}

void Interrupt::end_at_once(bool at_once) {
  at_once_ = at_once;
  if (at_once && fired()) end();  // the signal came before
}

void Interrupt::end() const {
  const char* const text = restores_;
  pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  if (text != nullptr && poll(&out, 1, 0) == 1) {  // a terminal that is stopped must not block
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, text, std::strlen(text));
  }
  _exit(kExitInterrupted);
}

void Interrupt::watch() {
  std::array<pollfd, 2> files = {pollfd{signals_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
  while (true) {
    const int ready = poll(files.data(), files.size(), -1);
    if (ready < 0 && errno == EINTR) continue;
    if (files[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo == SIGTERM) terminated_ = true;
    const std::lock_guard lock(mutex_);
    if (fired_.exchange(true) || at_once_) end();
    on_signal_();  // first, because the next line wakes the thread that waits
    check(eventfd_write(fired_file_, 1) == 0, "a signal can be told to the one who waits");
  }
}

}  // namespace runnel
