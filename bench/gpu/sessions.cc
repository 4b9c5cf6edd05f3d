// Finds exactly how many sessions fit on a GPU by allocating the memory: N fit, N + 1 do not.
//
//   gpu_sessions BUNDLE [FLAG VALUE]...      (driving.h)
#include <cstdint>
#include <cstdio>

#include "bench/gpu/driving.h"

namespace runnel {
namespace {

constexpr int kMost = 1 << 24;  // more than fit in any memory

int run(const Settings& settings) {
  const auto gpu = gpu_of(settings);
  const Bundle bundle = bundle_of(settings);
  int64_t state_bytes = 0;
  const auto fits = [&](int sessions) {
    const ModelLimits limits = {.slots = sessions, .rows = 1, .values = 512, .steps = 1};
    const auto model = make_model(bundle, *gpu, limits, settings.precision);
    if (!model.ok() && model.status().code() != Code::kResourceExhausted) {
      give_up(model.status().message());
    }
    if (model.ok()) state_bytes = (*model)->layout().state_bytes;
    return model.ok();
  };
  int fit = 0;
  int do_not = kMost;
  while (fit + 1 < do_not) {
    const int middle = fit + (do_not - fit) / 2;
    (fits(middle) ? fit : do_not) = middle;
  }
  std::printf(
      "{\"model\": \"%s\", \"numerics\": \"%s\", \"sessions\": %d, \"state_bytes\": %lld, "
      "\"states_gb\": %.1f}\n",
      bundle.spec.name.c_str(), gpu->numerics(settings.precision).c_str(), fit,
      static_cast<long long>(state_bytes), static_cast<double>(state_bytes) * fit / 1e9);
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::run(runnel::settings_of(argc, argv)); }
