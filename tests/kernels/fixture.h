// Each operation's test runs on every backend, instruction set and number of threads, on matrices
// that detect writes outside their elements.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/host_backend.h"
#include "tests/reference/reference_model.h"

namespace runnel {

// A matrix with a guard pattern around its elements (before, after, and between columns and
// stride). Elements are NaN until they are written. Its data is aligned to 4 bytes only.
class Guarded {
 public:
  Guarded(int rows, int cols, int extra_stride = 0);

  View view() { return {cell(0), DType::kF32, rows_, cols_, stride_}; }
  float* row(int index) { return cell(int64_t{index} * stride_); }
  float& at(int row, int col) { return this->row(row)[col]; }
  void fill(const std::vector<float>& values);  // [rows * cols]
  std::vector<float> values();                  // [rows * cols]
  int rows() const { return rows_; }
  int cols() const { return cols_; }

  // Fails the test if a guard around the elements has changed.
  void expect_guards(const std::string& where);

 private:
  float* cell(int64_t offset) { return memory_.data() + kMargin + offset; }
  static constexpr int kMargin = 67;

  int rows_, cols_, stride_;
  std::vector<float> memory_;
};

// Rounds to the nearest bf16 number, ties to even; and the bits of numbers that are bf16 already.
float rounded_to_bf16(float x);
std::vector<uint16_t> bf16_of(const std::vector<float>& numbers);

// Standard normal numbers.
std::vector<float> random_floats(int64_t count, uint32_t seed, float scale = 1.0F);

// Compares bits, so a NaN equals the same NaN.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

// Where an operation runs: on the CPU, on the GPU, or on the host with the GPU's kernels.
enum class SetupDevice : uint8_t { kCpu, kCudaOnHost, kCuda };

struct Setup {
  Isa isa = Isa::kPortable;
  int threads = 1;
  SetupDevice place = SetupDevice::kCpu;
  cuda::ThreadOrder order = cuda::ThreadOrder::kForward;  // of kCudaOnHost
  bool library = false;  // products by cuBLASLt; kCudaOnHost has a fake one

  // The same arithmetic on one thread, in forward order: nothing runs at the same time.
  Setup alone() const { return {isa, 1, place, cuda::ThreadOrder::kForward, library}; }

  friend void PrintTo(const Setup& setup, std::ostream* out);
};

// The precisions in which the backend has products.
std::vector<Precision> precisions_of(const Backend& backend);

// On the CPU, a backend whose threads share every operation, even a small one.
std::unique_ptr<Backend> make_backend(const Setup& setup);
inline std::unique_ptr<Backend> make_backend(Isa isa, int threads) {
  return make_backend({isa, threads});
}

std::vector<Setup> all_setups();        // of the CPU
std::vector<Setup> all_isas();          // one thread each
std::vector<Setup> all_backends();      // all_setups() and the GPU's
std::vector<Setup> each_backend();      // all_isas() and one of each kind of the GPU
std::vector<Setup> library_backends();  // the GPU's that use a library's products
std::string setup_name(const testing::TestParamInfo<Setup>& info);

class KernelTest : public testing::TestWithParam<Setup> {
 protected:
  void SetUp() override;
  Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
};

}  // namespace runnel
