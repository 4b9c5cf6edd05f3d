#include "server/openai/sampling_fields.h"

#include <limits>

#include "base/limits.h"

namespace runnel {
namespace {

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();

}  // namespace

void read_sampling(RequestFields& fields, GenerateRequest& call) {
  call.samples = static_cast<int>(fields.integer("n", 1, limits::kSamples.max).value_or(1));
  Sampling& sampling = call.sampling;
  if (const auto temperature = fields.number("temperature")) {
    sampling.greedy = *temperature == 0;
    if (!sampling.greedy) sampling.temperature = *temperature;
  }
  if (const auto top_p = fields.number("top_p")) sampling.top_p = *top_p;
  if (const auto min_p = fields.number("min_p")) sampling.min_p = *min_p;
  if (const auto top_k = fields.integer("top_k", 0, INT32_MAX)) {
    sampling.top_k = static_cast<int32_t>(*top_k);
  }
  if (const auto seed = fields.integer("seed", -kAnyInteger, kAnyInteger)) {
    call.seed = static_cast<uint64_t>(*seed);
  }
}

}  // namespace runnel
