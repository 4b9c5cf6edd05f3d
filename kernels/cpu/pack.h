// The panels of a layer's weight (isa.h). All threads make them, each one a panel at a time.
#pragma once

#include "kernels/cpu/cpu_threads.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/memory.h"

namespace runnel::cpu {

// Packs all of the weight but its bias, into memory of the arena. A weight is in blocks with
// kBlocks, and with nothing else.
Weight pack_panels(const HostTensor& weight, Precision precision, const Kernels& kernels,
                   CpuThreads& threads, Arena& arena);

}  // namespace runnel::cpu
