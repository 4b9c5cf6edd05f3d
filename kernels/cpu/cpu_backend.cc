#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "kernels/blocks.h"
#include "kernels/checks.h"
#include "kernels/cpu/choose_isa.h"
#include "kernels/cpu/cpu_threads.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/machine.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/phases.h"

namespace runnel {
namespace {

using cpu::divide_up;
using cpu::Kernels;

constexpr int kMaxThreads = 256;

// Sharing the operations of a pass costs barriers. It pays only above this much work in all, in
// nanoseconds.
constexpr int64_t kWorthATeam = 40'000;
// An input that takes this many nanoseconds has more weights than caches hold.
constexpr int64_t kFarWeights = 200'000;

const Kernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return cpu::amx_kernels();
  if (isa == Isa::kAvx512Bf16) return cpu::avx512bf16_kernels();
  if (isa == Isa::kAvx512) {
    const bool multiplies_bytes = __builtin_cpu_supports("avx512vnni");
    return multiplies_bytes ? cpu::avx512vnni_kernels() : cpu::avx512_kernels();
  }
  if (isa == Isa::kAvx2) return cpu::avx2_kernels();
#endif
  (void)isa;
  return cpu::portable_kernels();
}

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 40));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > 40 ? out + "..." : out;
}

// The threads of a backend, each with its operations.
struct Team {
  std::shared_ptr<CpuThreads> threads;
  cpu::Phases phases;
  std::vector<std::unique_ptr<CpuOperations>> lanes;
};

// The caller's thread does small passes with the operations of the backend itself. The team shares
// larger ones.
class CpuBackend final : public CpuOperations {
 public:
  CpuBackend(Isa isa, std::shared_ptr<CpuThreads> threads) : CpuOperations(isa, kernels_of(isa)) {
    team_.threads = std::move(threads);
    for (int i = 0; i < team_.threads->pool.threads(); ++i) {
      team_.lanes.push_back(std::make_unique<CpuOperations>(isa, kernels()));
    }
  }

  Weight pack(HostTensor weight, HostTensor bias, Precision precision) override;
  void run(Rows rows, int64_t work, const Pass& pass) override;

 private:
  void run_together(Rows rows, const Pass& pass);
  void run_in_parts(Rows rows, int runs, const Pass& pass);

  cpu::Arena weights_;
  Team team_;
  bool backwards_ = false;  // the order of runs
};

// The number of runs of rows to split a batch into; 1: it is better to share it operation by
// operation.
int runs_of(Rows rows, const Kernels& kernels, int threads, int64_t nanoseconds) {
  const int most = kernels.run_inputs;
  const int inputs = rows.inputs();
  int longest = 0;
  for (int row = 0; row < rows.count; ++row) {
    longest = std::max(longest, rows.first[row + 1] - rows.first[row]);
  }
  if (longest > most) return 1;
  const int64_t each = nanoseconds / std::max(inputs, 1);
  const int fewest = each < kWorthATeam / 8 ? 1
                     : each < kFarWeights   ? kernels.fewest_run_inputs
                                            : kernels.fewest_far_inputs;
  if (inputs < threads * fewest) return 1;
  // A multiple of the threads, so that all are busy until the end.
  const int rounds = divide_up(inputs, int64_t{threads} * most);
  return threads * rounds;
}

void CpuBackend::run(Rows rows, int64_t work, const Pass& pass) {
  if (rows.count == 0) return;
  const int threads = team_.threads->pool.threads();
  // 50 multiply-adds per nanosecond, half of that for a single input.
  const int64_t nanoseconds = (rows.inputs() + 1) * work / 50;
  const int runs = std::min(runs_of(rows, kernels(), threads, nanoseconds), rows.count);
  const bool together = runs <= 1 && threads > 1 && nanoseconds >= kWorthATeam;
  const cpu::Places::Hold hold(team_.threads->places, runs > 1 || together ? threads : 1);
  if (runs > 1) {
    run_in_parts(rows, runs, pass);
  } else if (together) {
    run_together(rows, pass);
  } else {
    pass(*this, 0, rows.count);
  }
}

void CpuBackend::run_together(Rows rows, const Pass& pass) {
  team_.phases.restart();
  const int threads = team_.threads->pool.threads();
  std::atomic<bool> over = false;
  team_.threads->pool.for_each(threads, [&](int, int thread) {
    if (over.load(std::memory_order_relaxed)) return;  // other threads have done all the work
    CpuOperations& lane = *team_.lanes[thread];
    lane.begin_sharing(team_.phases, threads);
    pass(lane, 0, rows.count);
    lane.end_sharing();
    over.store(true, std::memory_order_relaxed);
  });
}

// Run `index` of `runs` begins with the first row at or after its share of the inputs. Batches
// begin at alternate ends, because the states that a batch used last are still in a cache.
void CpuBackend::run_in_parts(Rows rows, int runs, const Pass& pass) {
  const auto begin_of = [&](int index) {
    const int32_t input = rows.first[0] + cpu::part(rows.inputs(), index, runs);
    return static_cast<int>(std::lower_bound(rows.first, rows.first + rows.count, input) -
                            rows.first);
  };
  backwards_ = !backwards_;
  team_.threads->pool.for_each(runs, [&](int task, int thread) {
    const int index = backwards_ ? runs - 1 - task : task;
    const int begin = begin_of(index);
    const int end = index + 1 == runs ? rows.count : begin_of(index + 1);
    if (begin < end) pass(*team_.lanes[thread], begin, end);
  });
}

Weight CpuBackend::pack(HostTensor weight, HostTensor bias, Precision precision) {
  check_pack(weight, bias);
  check(!numerics(precision).empty(), "pack: in a precision that numerics() has an id for");
  check(precision == Precision::kBlocks || !is_blocks(weight.stored), "pack: blocks for kBlocks");
  const int64_t panel = kernels().panel;
  if (!is_blocks(weight.stored) && precision == Precision::kBlocks) precision = Precision::kFp32;
  Weight packed = cpu::pack_panels(weight, precision, kernels(), *team_.threads, weights_);
  packed.bias = weights_.place(divide_up(weight.rows, panel) * panel * 4);
  if (bias.data != nullptr) {
    std::memcpy(packed.bias.data(), bias.data, static_cast<size_t>(weight.rows) * 4);
  }
  make_room_for(weight, precision);
  for (const auto& lane : team_.lanes) lane->make_room_for(weight, precision);
  return packed;
}

}  // namespace

// ---- choosing -----------------------------------------------------------------------------------

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Result<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : kIsas) {
    if (name == isa_name(isa)) return isa;
  }
  return invalid_argument("isa is '" + shown(name) +
                          "'; it must be portable, avx2, avx512, avx512bf16 or amx");
}

bool isa_available(Isa isa) {
  if (isa == Isa::kPortable) return true;
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
  const bool has_dots =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (isa >= Isa::kAvx512Bf16 && !has_dots) return false;
  if (isa == Isa::kAmx && !cpu::may_use_tiles()) return false;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

Result<std::shared_ptr<CpuThreads>> make_cpu_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return invalid_argument("threads is " + std::to_string(threads) +
                            "; it must be between 0 (one per core) and " +
                            std::to_string(kMaxThreads));
  }
  if (threads == 0) threads = std::min(cpu::usable_cores(), kMaxThreads);
  try {
    return std::make_shared<CpuThreads>(threads);
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted, "cannot start " + std::to_string(threads) +
                                                " threads (" + error.what() +
                                                "); ask for fewer threads");
  }
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  const Isa isa = options.isa.value_or(cpu::best_isa().isa);
  if (!isa_available(isa)) {
    return Status(Code::kFailedPrecondition,
                  std::string("this machine does not have the instruction set ") + isa_name(isa) +
                      "; leave isa out for the best one present, or ask for portable");
  }
  std::shared_ptr<CpuThreads> threads = options.shared;
  if (threads == nullptr) {
    auto own = make_cpu_threads(options.threads);
    if (!own.ok()) return own.status();
    threads = std::move(*own);
  }
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(isa, std::move(threads)));
}

}  // namespace runnel
