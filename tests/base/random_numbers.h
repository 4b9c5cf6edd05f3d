// Random numbers for tests, which need many of them.
#pragma once

#include <cstdint>
#include <limits>

namespace runnel {

class RandomNumbers {
 public:
  // As std::shuffle needs it.
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  uint64_t operator()() { return bits(); }

  explicit RandomNumbers(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  // The sum of four uniform numbers, with mean 0 and deviation 1: nearly normal, and at most 3.47.
  double normal() {
    const uint64_t all = bits();
    const auto part = [all](int i) { return static_cast<double>(all >> 16 * i & 0xffff); };
    constexpr double kDeviation = 37837.227;  // of the sum of parts: 65536 / sqrt(3)
    return (part(0) + part(1) + part(2) + part(3) - 2 * 65535.0) / kDeviation;
  }

 private:
  uint64_t state_;
};

}  // namespace runnel
