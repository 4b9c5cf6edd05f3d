// Every operation's test runs on every backend, instruction set and number of threads, on matrices
// that notice what should not have been touched.
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

// A matrix whose surroundings (before, behind, and between columns and stride) hold a pattern, and
// whose elements are NaN until they are written. Its data is aligned to 4 bytes only.
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

  // Fails the test when anything around the elements has changed.
  void expect_guards(const std::string& where);

 private:
  float* cell(int64_t offset) { return memory_.data() + kMargin + offset; }
  static constexpr int kMargin = 67;

  int rows_, cols_, stride_;
  std::vector<float> memory_;
};

// The nearest number of bf16, ties to even; and the bits of numbers that are bf16.
float rounded_to_bf16(float x);
std::vector<uint16_t> bf16_of(const std::vector<float>& numbers);

// Standard normal numbers.
std::vector<float> random_floats(int64_t count, uint32_t seed, float scale = 1.0F);

// The same bits, NaN included.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

// Where an operation runs: on the CPU, on the GPU, or as the GPU's kernels on the host.
enum class SetupDevice : uint8_t { kCpu, kCudaOnHost, kCuda };

struct Setup {
  Isa isa = Isa::kPortable;
  int threads = 1;
  SetupDevice place = SetupDevice::kCpu;
  cuda::ThreadOrder order = cuda::ThreadOrder::kForward;  // of kCudaOnHost
  bool library = false;  // products by cuBLASLt, of kCudaOnHost by the one that stands in for it

  // The same arithmetic, with nothing beside it that could come first.
  Setup alone() const { return {isa, 1, place, cuda::ThreadOrder::kForward, library}; }

  friend void PrintTo(const Setup& setup, std::ostream* out);
};

// Those that the backend has products in.
std::vector<Precision> precisions_of(const Backend& backend);

// On the CPU one whose threads share every operation, however small it is.
std::unique_ptr<Backend> make_backend(const Setup& setup);
inline std::unique_ptr<Backend> make_backend(Isa isa, int threads) {
  return make_backend({isa, threads});
}

std::vector<Setup> all_setups();        // of the CPU
std::vector<Setup> all_isas();          // one thread each
std::vector<Setup> all_backends();      // all_setups() and those of the GPU
std::vector<Setup> each_backend();      // all_isas() and one of each of the GPU
std::vector<Setup> library_backends();  // the GPU's with a library's products
std::string setup_name(const testing::TestParamInfo<Setup>& info);

class KernelTest : public testing::TestWithParam<Setup> {
 protected:
  void SetUp() override;
  Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
};

}  // namespace runnel
