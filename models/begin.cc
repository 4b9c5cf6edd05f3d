#include "models/begin.h"

#include "kernels/philox.h"

namespace runnel {

int32_t begin_value(const Begin& begin, uint64_t seed, uint32_t stream) {
  if (begin.histogram.empty()) return begin.value;
  const float u = philox_uniform(philox_words(seed, 0, stream, 0).word[0]);
  float sum = 0.0F;
  for (size_t value = 0; value < begin.histogram.size(); ++value) {
    sum += begin.histogram[value];
    if (u < sum) return static_cast<int32_t>(value);
  }
  // Rounding left the sum slightly below u: takes the last value that has any weight.
  auto value = static_cast<int32_t>(begin.histogram.size()) - 1;
  while (begin.histogram[value] == 0.0F) --value;
  return value;
}

void put_begin(const std::optional<Begin>& begin, std::vector<int32_t>& values) {
  if (begin && begin->histogram.empty()) values.insert(values.begin(), begin->value);
}

}  // namespace runnel
