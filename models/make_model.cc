#include "models/make_model.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "models/families.h"
#include "models/recurrent_model.h"
#include "models/weights.h"

namespace runnel {
namespace {

Status check_layers(std::span<const LayerStates> layers, const Backend& backend) {
  for (const LayerStates& layer : layers) {
    for (const LayerState& state : layer) {
      Status status;
      if (const auto* const of = std::get_if<Recurrence>(&state)) status = backend.takes(*of);
      if (const auto* const of = std::get_if<Attention>(&state)) status = backend.takes(*of);
      if (!status.ok()) return status;
    }
  }
  return {};
}

void set_cache(std::vector<LayerStates>& layers, DType cache) {
  for (LayerStates& layer : layers) {
    for (LayerState& state : layer) {
      if (auto* const attention = std::get_if<Attention>(&state)) attention->stored = cache;
    }
  }
}

// Everything that determines the bits of a state.
std::string state_numerics(const Spec& spec, const Backend& backend, Precision precision,
                           DType cache) {
  const std::string states = backend.numerics(precision) + "/state-fp32";
  if (spec.position_bytes() == 0) return states;
  return states + (cache == DType::kBF16 ? "+cache-bf16" : "+cache-fp32");
}

Status check_precision(const Bundle& bundle, const Backend& backend, Precision precision) {
  const bool is_blocks = precision == Precision::kBlocks;
  if (backend.numerics(precision).empty()) {
    const std::string refused = is_blocks
                                    ? "blocks does not go with kernels cublas; ask for kernels own"
                                    : "int8 is for a CPU alone; ask for backend cpu";
    return {Code::kFailedPrecondition,
            bundle.directory + ": precision " + refused + ", or for precision bf16 or fp32"};
  }
  if (!is_blocks || bundle.has_blocks()) return {};
  return {Code::kFailedPrecondition,
          bundle.directory + ": precision blocks is for quantized GGUF files, and no weight here " +
              "is in blocks; ask for precision auto, fp32, bf16 or int8"};
}

}  // namespace

int slots_that_fit(int64_t free_bytes, int64_t session_bytes, int each) {
  const int64_t fit = free_bytes / 2 / std::max<int64_t>(session_bytes, 1);
  return static_cast<int>(std::clamp<int64_t>(fit, 1, kMostUnasked)) * each;
}

Result<std::unique_ptr<Model>> make_model(const Bundle& bundle, Backend& backend,
                                          const ModelLimits& limits, Precision precision,
                                          std::optional<DType> asked_cache) {
  // Decoding rows come first. A chunk must fit after them, or else a prompt would wait forever.
  if (const int chunk = backend.chunk(); chunk > 1 && limits.values < limits.rows + chunk) {
    return invalid_argument(
        "prompts in chunks of " + std::to_string(chunk) + " need batch_values of at least " +
        std::to_string(limits.rows + chunk) + " (batch_rows + " + std::to_string(chunk) +
        "), which is " + std::to_string(limits.values) + ": raise it, or take prompts in steps");
  }
  if (Status status = check_precision(bundle, backend, precision); !status.ok()) return status;
  const Spec& spec = bundle.spec;
  const Family& family = family_of(spec);
  std::vector<LayerStates> layers = family.layers(spec);
  const DType cache =
      asked_cache.value_or(precision == Precision::kFp32 ? DType::kF32 : DType::kBF16);
  set_cache(layers, cache);
  if (Status status = check_layers(layers, backend); !status.ok()) {
    return Status(status.code(), bundle.directory + ": " + status.message());
  }
  const StateLayout layout =
      lay_out(layers, backend, state_numerics(spec, backend, precision, cache), spec.positions,
              spec.head.kind == HeadKind::kCategorical ? limits.recent : 0);
  const int64_t session_bytes =
      layout.state_bytes + (limits.slots_of_session - 1) * layout.fixed_bytes();
  ModelLimits sized = limits;
  if (sized.steps == 0) sized.steps = backend.preferred_steps();
  try {
    auto network = family.make_network({bundle, backend, layout, limits, precision, cache});
    if (Status s = bundle.check_numbers(); !s.ok()) return s;
    if (sized.slots == 0) {
      sized.slots = slots_that_fit(backend.free_memory(), session_bytes, limits.slots_of_session);
    }
    return make_recurrent_model(spec, backend, sized, layout, std::move(network));
  } catch (const WeightFault& fault) {
    return fault.status;
  } catch (const std::bad_alloc&) {
    const int sessions = sized.slots / limits.slots_of_session;
    const int64_t mib = (session_bytes * sessions + spec.parameters() * 4) >> 20;
    const std::string about = "(about " + std::to_string(mib) + " MiB)";
    const std::string memory = bundle.directory + ": not enough memory for ";
    if (sized.slots == 0) return Status(Code::kResourceExhausted, memory + "the weights " + about);
    return Status(Code::kResourceExhausted, memory + std::to_string(sessions) +
                                                " sessions and the weights " + about +
                                                "; lower the number of sessions" +
                                                (layout.page_bytes > 0 ? ", or --context" : ""));
  }
}

}  // namespace runnel
