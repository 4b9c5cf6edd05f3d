// Positions as sines and cosines (Vaswani et al. 2017, section 3.5), on the host.
#pragma once

#include <cmath>
#include <cstdint>

namespace runnel {

struct Sinusoids {
  float sine, cosine;
};

// Columns 2 * pair and 2 * pair + 1 of a position's vector of `width` columns (Embedding).
inline Sinusoids sinusoids(int64_t position, int pair, int width) {
  constexpr double kLn10000 = 9.210340371976184;
  const double frequency = std::exp(-2.0 * pair / width * kLn10000);
  const double angle = static_cast<double>(position) * frequency;
  return {static_cast<float>(std::sin(angle)), static_cast<float>(std::cos(angle))};
}

}  // namespace runnel
