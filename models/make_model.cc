#include "models/make_model.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "models/linear_transformer/network.h"
#include "models/mamba2/network.h"
#include "models/recurrent_model.h"
#include "models/rwkv7/network.h"

namespace runnel {

int slots_that_fit(int64_t free_bytes, int64_t state_bytes, int each) {
  const int64_t fit = free_bytes / 2 / std::max<int64_t>(state_bytes * each, 1);
  return static_cast<int>(std::clamp<int64_t>(fit, 1, kMostUnasked)) * each;
}

Result<std::unique_ptr<Model>> make_model(const Bundle& bundle, Backend& backend,
                                          const ModelLimits& limits, Precision precision) {
  // Decoding rows come first; a chunk must fit behind them, or a prompt would wait for ever.
  if (const int chunk = backend.chunk(); chunk > 1 && limits.values < limits.rows + chunk) {
    return invalid_argument(
        "prompts in chunks of " + std::to_string(chunk) + " need batch_values of at least " +
        std::to_string(limits.rows + chunk) + " (batch_rows + " + std::to_string(chunk) +
        "), which is " + std::to_string(limits.values) + ": raise it, or take prompts in steps");
  }
  if (backend.numerics(precision).empty()) {
    return Status(Code::kFailedPrecondition,
                  bundle.directory +
                      ": precision int8 is for a CPU alone; ask for backend cpu, or "
                      "for precision bf16 or fp32");
  }
  const Spec& spec = bundle.spec;
  const Recurrence recurrence =
      std::visit([](const auto& family) { return recurrence_of(family); }, spec.model);
  if (Status status = backend.takes(recurrence); !status.ok()) {
    return Status(status.code(), bundle.directory + ": " + status.message());
  }
  ModelLimits sized = limits;
  if (sized.steps == 0) sized.steps = backend.preferred_steps();
  try {
    auto network = std::visit(
        [&](const auto& family) {
          return make_network(family, bundle, backend, limits, precision);
        },
        spec.model);
    if (sized.slots == 0) {
      sized.slots =
          slots_that_fit(backend.free_memory(), network->state_bytes(), limits.slots_of_session);
    }
    return make_recurrent_model(spec, backend, sized, backend.numerics(precision) + "/state-fp32",
                                std::move(network));
  } catch (const std::bad_alloc&) {
    const int64_t mib = (spec.state_bytes() * sized.slots + spec.parameters() * 4) >> 20;
    return Status(Code::kResourceExhausted,
                  bundle.directory + ": not enough memory for " + std::to_string(sized.slots) +
                      " states and the weights (about " + std::to_string(mib) +
                      " MiB); lower the number of sessions");
  }
}

}  // namespace runnel
