// The backend for the CPU: operations are vectorized for one of the machine's instruction sets, and
// run on a fixed pool of threads.
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

// True if this machine can run the instruction set. For kAmx, the first call requests permission
// from the operating system to use tiles.
bool isa_available(Isa isa);

// A pool of threads, which several backends may share. Each backend is called from its own thread.
// A step that uses all threads runs alone. Steps that use one thread each run at the same time.
struct CpuThreads;

// `threads` includes the caller's. 0: one for each core that this process may use. INVALID_ARGUMENT
// if `threads` is negative or more than 256, RESOURCE_EXHAUSTED if they cannot be started.
Result<std::shared_ptr<CpuThreads>> make_cpu_threads(int threads);

struct CpuOptions {
  std::optional<Isa> isa;                        // none: best_isa()
  int threads = 0;                               // without `shared`: as for make_cpu_threads()
  std::shared_ptr<CpuThreads> shared = nullptr;  // null: the backend makes its own threads
};

// FAILED_PRECONDITION if the machine does not have the instruction set `isa`. Other errors are
// those of make_cpu_threads().
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

}  // namespace runnel
