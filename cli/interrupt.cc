#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
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
  check(signals_ >= 0 && stop_ >= 0, "there are file descriptors for signals");
  thread_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  const uint64_t one = 1;
  check(write(stop_, &one, sizeof one) == sizeof one, "the watching thread can be told to end");
  thread_.join();
  close(signals_);
  close(stop_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::watch() {
  std::array<pollfd, 2> files = {pollfd{signals_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
  while (true) {
    const int ready = poll(files.data(), files.size(), -1);
    if (ready < 0 && errno == EINTR) continue;
    if (files[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) != sizeof info) continue;
    if (fired_.exchange(true)) _exit(kExitInterrupted);
    on_signal_();
  }
}

}  // namespace runnel
