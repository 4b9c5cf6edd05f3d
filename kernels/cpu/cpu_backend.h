// The operations on the CPU: vectorized for an instruction set of the machine, on a fixed pool of
// threads.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "kernels/backend.h"

namespace runnel {

enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                Isa::kAmx};

// "portable", "avx2", "avx512", "avx512bf16", "amx".
const char* isa_name(Isa isa);
Result<Isa> parse_isa(std::string_view name);

// True when this machine can run it. For kAmx the kernel is asked, once, for leave to use tiles.
bool isa_available(Isa isa);

// A team of threads. The backends that share one, each with a thread of its own that calls it, take
// turns: a step that all threads share runs alone, a step of one thread beside others of one
// thread.
struct CpuThreads;

// `threads` includes the caller's; 0: one per core that this process may use. INVALID_ARGUMENT when
// `threads` is negative or more than 256, RESOURCE_EXHAUSTED when they cannot be started.
Result<std::shared_ptr<CpuThreads>> make_cpu_threads(int threads);

struct CpuOptions {
  std::optional<Isa> isa;                        // none: best_isa()
  int threads = 0;                               // of its own, as for make_cpu_threads()
  std::shared_ptr<CpuThreads> shared = nullptr;  // null: threads of its own
};

// Fails with FAILED_PRECONDITION when the instruction set asked for is not there, and as
// make_cpu_threads().
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

}  // namespace runnel
