#include "kernels/cpu/phases.h"

#include "kernels/cpu/relax.h"

namespace runnel::cpu {
namespace {

constexpr int kPhase = 32;  // bits

// Spins for longer than a working thread lags behind another. A thread that lags more has lost its
// core to another program.
constexpr int kWatches = 1000;

}  // namespace

int Phases::take(uint32_t phase, int tasks) {
  uint64_t at = at_.load(std::memory_order_acquire);
  for (;;) {
    const auto taken = static_cast<uint32_t>(at);
    if (at >> kPhase != phase || taken >= static_cast<uint32_t>(tasks)) return -1;
    if (at_.compare_exchange_weak(at, at + 1, std::memory_order_acquire)) {
      return static_cast<int>(taken);
    }
  }
}

void Phases::report(uint32_t phase, int tasks, int done) {
  if (done_.fetch_add(done, std::memory_order_acq_rel) + done < tasks) return;
  done_.store(0, std::memory_order_relaxed);
  // Sequentially consistent with the sleepers' count: either the sleepers see the new phase, or
  // this thread sees the sleepers.
  at_.store(uint64_t{phase + 1} << kPhase);
  if (sleepers_.load() > 0) at_.notify_all();
}

void Phases::await(uint32_t phase) {
  for (int i = 0; i < kWatches; ++i) {
    if (at_.load(std::memory_order_acquire) >> kPhase != phase) return;
    relax();
  }
  sleepers_.fetch_add(1);
  for (uint64_t at = at_.load(); at >> kPhase == phase; at = at_.load()) at_.wait(at);
  sleepers_.fetch_sub(1);
}

}  // namespace runnel::cpu
