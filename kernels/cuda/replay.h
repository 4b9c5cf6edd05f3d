// The state as replay keeps it: (S, z) as of the last flush, and behind them a log of the inputs
// since then, {phi(k) [dk], v [dv]} each. A step reads it, does again what the log says and goes on
// from there; what it writes is one entry, or at every kReplay-th position (S, z) instead. These
// are the additions of the plain form, one by one in its order: so are the bits.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace runnel::cuda {

enum class StateForm : uint8_t { kPlain, kReplay };

// Positions from flush to flush, at the multiples of it. A head of 32 x 32 moves 5.9 KB a step
// instead of 8.4, one of 128 x 128 79 KB instead of 132; any length from 4 to 16 does as well
// within a tenth, and the longer ones do more work.
inline constexpr int kReplay = 8;

// An entry stays until an input comes for its place, so that a state is the same however a sequence
// came to it. The input that flushes has none.
RUNNEL_DEVICE constexpr int64_t log_floats(int dk, int dv) {
  return int64_t{kReplay - 1} * (dk + dv);
}

// Of one head.
RUNNEL_DEVICE constexpr int64_t state_floats(StateForm form, int dk, int dv) {
  return int64_t{dk} * dv + dk + (form == StateForm::kReplay ? log_floats(dk, dv) : 0);
}

// One head of one row on its way through its inputs, [begin, end) of the batch.
struct HeadRun {
  float* state;    // S [dk][dv], z [dk], and with replay the log
  int head;        // which one
  int begin, end;  // its inputs
  int logged;      // inputs in the log when the first one comes

  // With replay: which entry of the log an input is, kReplay - 1 for the one that flushes.
  RUNNEL_DEVICE int entry(int input) const { return (logged + input - begin) % kReplay; }
  // The input before which (S, z) is written for the last time.
  RUNNEL_DEVICE int last_flush(StateForm form) const {
    return form == StateForm::kPlain ? end : end - (logged + end - begin) % kReplay;
  }
};

}  // namespace runnel::cuda
