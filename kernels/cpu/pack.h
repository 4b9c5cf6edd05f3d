// Packs a layer's weight into panels (isa.h). All threads take part, one panel at a time.
#pragma once

#include "kernels/cpu/cpu_threads.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/memory.h"

namespace runnel::cpu {

// Packs the weight without its bias into memory of the arena. The weight must be in blocks if the
// precision is kBlocks, and only then.
Weight pack_panels(const HostTensor& weight, Precision precision, const Kernels& kernels,
                   CpuThreads& threads, Arena& arena);

}  // namespace runnel::cpu
