// The limits of this machine's hardware, to which other measurements are compared.
#pragma once

#include "base/status.h"

namespace runnel {

// The best of several runs. Every thread has its own data.
struct MachineLimits {
  int threads = 0;
  double fp32_gflops = 0;       // multiply-adds count twice
  double bf16_gflops = 0;       // vdpbf16ps; 0: this machine has none
  double tile_gflops = 0;       // AMX's tiles of bf16, weights from L2; 0: this process has none
  double l2_gbps = 0;           // reads, 512 KiB a thread
  double l3_gbps = 0;           // reads, 6 MiB a thread
  double dram_gbps = 0;         // reads, 192 MiB a thread
  double dram_update_gbps = 0;  // read, changed and written in place; both ways count
};

// Measures with `threads` threads, for about a second. RESOURCE_EXHAUSTED if there is too little
// memory, or a thread cannot be started.
Result<MachineLimits> measure_limits(int threads);

}  // namespace runnel
