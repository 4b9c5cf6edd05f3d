#include "tests/kernels/fixture.h"

#include <bit>
#include <limits>
#include <utility>

namespace runnel {
namespace {

const float kGuard = std::bit_cast<float>(0x7fbadbadU);  // a NaN with a face

bool is_guard(float x) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(kGuard); }

}  // namespace

Guarded::Guarded(int rows, int cols, int extra_stride)
    : rows_(rows),
      cols_(cols),
      stride_(cols + extra_stride),
      memory_(2 * kMargin + int64_t{rows} * stride_, kGuard) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) at(r, c) = std::numeric_limits<float>::quiet_NaN();
  }
}

void Guarded::fill(const std::vector<float>& values) {
  ASSERT_EQ(values.size(), static_cast<size_t>(rows_) * cols_);
  for (int r = 0; r < rows_; ++r) {
    for (int c = 0; c < cols_; ++c) at(r, c) = values[static_cast<size_t>(r) * cols_ + c];
  }
}

std::vector<float> Guarded::values() {
  std::vector<float> out;
  for (int r = 0; r < rows_; ++r) out.insert(out.end(), row(r), row(r) + cols_);
  return out;
}

void Guarded::expect_guards(const std::string& where) {
  for (int i = 0; i < kMargin; ++i) {
    ASSERT_TRUE(is_guard(memory_[i])) << where << ": written before the matrix";
    ASSERT_TRUE(is_guard(memory_[memory_.size() - 1 - i]))
        << where << ": written behind the matrix";
  }
  for (int r = 0; r < rows_; ++r) {
    for (int c = cols_; c < stride_; ++c) {
      ASSERT_TRUE(is_guard(row(r)[c])) << where << ": written between rows, after row " << r;
    }
  }
}

std::vector<float> random_floats(int64_t count, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> out(count);
  for (float& x : out) x = normal(generator);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

std::unique_ptr<Backend> make_backend(Isa isa, int threads) {
  auto backend = make_cpu_backend({.isa = isa, .threads = threads});
  if (!backend.ok()) {
    ADD_FAILURE() << backend.status().to_string();
    return nullptr;
  }
  return std::move(backend).value();
}

std::vector<Setup> all_setups() {
  std::vector<Setup> setups;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    for (const int threads : {1, 2, 4}) setups.push_back({isa, threads});
  }
  return setups;
}

std::vector<Setup> all_isas() { return {{Isa::kPortable, 1}, {Isa::kAvx2, 1}, {Isa::kAvx512, 1}}; }

std::string setup_name(const testing::TestParamInfo<Setup>& info) {
  return std::string(isa_name(info.param.isa)) + "_" + std::to_string(info.param.threads);
}

}  // namespace runnel
