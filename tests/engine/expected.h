// The values that a fake model generates.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/engine/fake_model.h"

namespace runnel {

// The next `count` values of a fake model of fake_spec() after `known`.
inline std::vector<int32_t> expected(const std::vector<int32_t>& known, int count,
                                     uint64_t seed = 1, uint32_t stream = 0) {
  return FakeModel::expected(fake_spec(), known, seed, stream, count);
}

}  // namespace runnel
