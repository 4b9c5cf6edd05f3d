#include "tests/kernels/fixture.h"

#include <bit>
#include <limits>
#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/product_library.h"
#include "kernels/forwarding_backend.h"
#include "tests/base/random_numbers.h"
#include "tests/kernels/mirror_backend.h"

namespace runnel {
namespace {

const float kGuard = std::bit_cast<float>(0x7fbadbadU);  // a NaN that is easy to recognize

bool is_guard(float x) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(kGuard); }

// Gives each operation its own run(), with a work estimate so large that all threads take part.
class SharingBackend final : public ForwardingBackend {
 public:
  explicit SharingBackend(std::unique_ptr<Backend> to)
      : ForwardingBackend(*to), to_(std::move(to)) {}

  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override {
    share([&](Backend& lane) { lane.embed(rows, values, control, embedding, out); });
  }
  void matmuls(std::span<const Product> products) override {
    share([&](Backend& lane) { lane.matmuls(products); });
  }
  void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
               View out) override {
    share([&](Backend& lane) { lane.experts(x, scores, experts, room, out); });
  }
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override {
    share([&](Backend& lane) { lane.gated_norm(x, norm, gate, out); });
  }
  void shift(Rows rows, View x, View mu, States states, View out) override {
    share([&](Backend& lane) { lane.shift(rows, x, mu, states, out); });
  }
  void convolves(Rows rows, std::span<const Convolved> all) override {
    share([&](Backend& lane) { lane.convolves(rows, all); });
  }
  void norm(View x, View residual, const Norm& norm, View out) override {
    share([&](Backend& lane) { lane.norm(x, residual, norm, out); });
  }
  void features(View x, const RandomFeatures& features, View out) override {
    share([&](Backend& lane) { lane.features(x, features, out); });
  }
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override {
    share([&](Backend& lane) { lane.recur(rows, control, recurrence, inputs, states, out); });
  }
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override {
    share([&](Backend& lane) { lane.attend(rows, control, attention, inputs, cache, out); });
  }
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override {
    share([&](Backend& lane) { lane.sample(rows, outputs, kind, head, control, to); });
  }
  void score(const Head& kind, View head, View targets, View log_probs) override {
    share([&](Backend& lane) { lane.score(kind, head, targets, log_probs); });
  }

 private:
  template <typename F>
  void share(const F& operation) {
    int32_t slot = 0;
    const int32_t first[] = {0, 1};
    run({&slot, first, 1}, int64_t{1} << 40,
        [&operation](Backend& lane, int, int) { operation(lane); });
  }

  std::unique_ptr<Backend> to_;
};

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

float rounded_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U);
}

std::vector<uint16_t> bf16_of(const std::vector<float>& numbers) {
  std::vector<uint16_t> bits(numbers.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded_to_bf16(numbers[i])) >> 16);
  }
  return bits;
}

std::vector<float> random_floats(int64_t count, uint32_t seed, float scale) {
  RandomNumbers numbers(seed);
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(scale * numbers.normal());
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

std::vector<Precision> precisions_of(const Backend& backend) {
  std::vector<Precision> precisions;
  for (const Precision one : {Precision::kFp32, Precision::kBf16, Precision::kInt8}) {
    if (!backend.numerics(one).empty()) precisions.push_back(one);
  }
  return precisions;
}

std::unique_ptr<Backend> make_backend(const Setup& setup) {
  const CudaOptions options = {.library = setup.library};
  if (setup.place == SetupDevice::kCudaOnHost) {
    return cuda::make_host_backend(options, setup.order);
  }
  auto backend = setup.place == SetupDevice::kCuda
                     ? make_cuda_backend(options)
                     : make_cpu_backend({.isa = setup.isa, .threads = setup.threads});
  if (!backend.ok()) {
    ADD_FAILURE() << backend.status().to_string();
    return nullptr;
  }
  if (setup.place == SetupDevice::kCuda)
    return std::make_unique<MirrorBackend>(std::move(*backend));
  return std::make_unique<SharingBackend>(std::move(backend).value());
}

std::vector<Setup> all_setups() {
  std::vector<Setup> setups;
  for (const Isa isa : kIsas) {
    for (const int threads : {1, 2, 4}) setups.push_back({isa, threads});
  }
  return setups;
}

std::vector<Setup> all_isas() {
  std::vector<Setup> setups;
  for (const Isa isa : kIsas) setups.push_back({isa, 1});
  return setups;
}

std::vector<Setup> all_backends() {
  std::vector<Setup> setups = all_setups();
  for (const auto order :
       {cuda::ThreadOrder::kForward, cuda::ThreadOrder::kBackward, cuda::ThreadOrder::kShuffled}) {
    setups.push_back({.place = SetupDevice::kCudaOnHost, .order = order});
  }
  setups.push_back({.place = SetupDevice::kCuda});
  return setups;
}

std::vector<Setup> each_backend() {
  std::vector<Setup> setups = all_isas();
  setups.push_back({.place = SetupDevice::kCudaOnHost});
  setups.push_back({.place = SetupDevice::kCuda});
  return setups;
}

std::vector<Setup> library_backends() {
  return {{.place = SetupDevice::kCudaOnHost, .library = true},
          {.place = SetupDevice::kCuda, .library = true}};
}

std::string setup_name(const testing::TestParamInfo<Setup>& info) {
  const Setup& setup = info.param;
  constexpr const char* kOrders[] = {"forward", "backward", "shuffled"};
  if (setup.library) return setup.place == SetupDevice::kCuda ? "cuda_library" : "library_on_host";
  if (setup.place == SetupDevice::kCuda) return "cuda";
  if (setup.place == SetupDevice::kCudaOnHost) {
    return std::string("cuda_on_host_") + kOrders[static_cast<int>(setup.order)];
  }
  return std::string(isa_name(setup.isa)) + "_" + std::to_string(setup.threads);
}

void PrintTo(const Setup& setup, std::ostream* out) { *out << setup_name({setup, 0}); }

void KernelTest::SetUp() {
  const runnel::Setup& setup = GetParam();
  if (setup.place == SetupDevice::kCpu && !isa_available(setup.isa)) {
    GTEST_SKIP() << "this machine does not have " << isa_name(setup.isa);
  }
  const auto no_cuda = [](const Status& status) {
    return status.code() == Code::kFailedPrecondition;
  };
  if (setup.place == SetupDevice::kCuda) {
    const auto backend = make_cuda_backend({.library = setup.library});
    if (no_cuda(backend.status()) || backend.status().code() == Code::kNotFound) {
      GTEST_SKIP() << backend.status().message();
    }
  } else if (setup.library) {
    const auto library = cuda::ProductLibrary::open({cuda::kFakeLibrary});
    if (no_cuda(library.status())) GTEST_SKIP() << library.status().message();
  }
  backend_ = make_backend(setup);
}

}  // namespace runnel
