// Philox4x32-10, the counter-based random numbers of Salmon et al., "Parallel Random Numbers: As
// Easy as 1, 2, 3" (SC 2011). A number is a pure function of key and counter, so that a value
// sampled at a position never depends on what was sampled elsewhere. Plain constexpr code: the same
// on the host and on a device.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace runnel {

struct PhiloxCounter {
  uint32_t word[4];
};

struct PhiloxKey {
  uint32_t word[2];
};

// Ten rounds of Philox4x32 over `counter` under `key`: four independent uniform words.
RUNNEL_DEVICE constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter.word[0];
    const uint64_t product1 = kMultiplier1 * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.word[0],
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.word[1],
                static_cast<uint32_t>(product0)}};
    key.word[0] += kWeyl0;
    key.word[1] += kWeyl1;
  }
  return counter;
}

// The words that choose the value at `position`: key = seed, counter = (position: 64 bits, stream:
// 32, block: 32).
RUNNEL_DEVICE constexpr PhiloxCounter philox_words(uint64_t seed, int64_t position, uint32_t stream,
                                                   uint32_t block) {
  const uint64_t at = static_cast<uint64_t>(position);
  return philox4x32_10(
      {{static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), stream, block}},
      {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}});
}

// Converts a word to ((word >> 9) + 0.5) * 2^-23. The result u is uniform in (0, 1), never 0 or 1.
// u and 1 - u are exact in fp32.
RUNNEL_DEVICE constexpr float philox_uniform(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5F) * 0x1p-23F;
}

}  // namespace runnel
