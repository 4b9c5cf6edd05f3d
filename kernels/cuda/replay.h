// The state with replay: (S, z) from the last flush, and then a log of the inputs since then,
// {phi(k) [dk], v [dv]} each. A step reads the state, repeats the additions of the log, and
// continues from there. It writes only one entry or, at every kReplay-th position, (S, z) instead.
// The additions are those of the plain form in the same order, so the bits are the same.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace runnel::cuda {

enum class StateForm : uint8_t { kPlain, kReplay };

// The positions from one flush to the next. Flushes are at multiples of it. A head of 32 x 32 moves
// 5.9 KB a step instead of 8.4 KB, and one of 128 x 128 moves 79 KB instead of 132 KB. Lengths from
// 4 to 16 differ by at most a tenth; longer ones need more arithmetic.
inline constexpr int kReplay = 8;

// An entry stays until an input overwrites it, so that a state does not depend on how its sequence
// was computed. The input that flushes has no entry.
RUNNEL_DEVICE constexpr int64_t log_floats(int dk, int dv) {
  return int64_t{kReplay - 1} * (dk + dv);
}

// The floats of one head's state.
RUNNEL_DEVICE constexpr int64_t state_floats(StateForm form, int dk, int dv) {
  return int64_t{dk} * dv + dk + (form == StateForm::kReplay ? log_floats(dk, dv) : 0);
}

// One head of one row, and its inputs [begin, end) of the batch.
struct HeadRun {
  float* state;    // S [dk][dv], z [dk], and with replay the log
  int head;        // the index of the head
  int begin, end;  // its inputs
  int logged;      // inputs in the log before the first input

  // With replay: the index of an input's entry in the log; kReplay - 1 for the input that flushes.
  RUNNEL_DEVICE int entry(int input) const { return (logged + input - begin) % kReplay; }
  // The input before which (S, z) is written for the last time.
  RUNNEL_DEVICE int last_flush(StateForm form) const {
    return form == StateForm::kPlain ? end : end - (logged + end - begin) % kReplay;
  }
};

}  // namespace runnel::cuda
