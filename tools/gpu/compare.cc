// Whether a GPU's pictures are the CPU's: bits per dimension of held-out images, one by one, and
// how many values differ between pictures drawn from the same seeds. The CPU works in fp32. One
// JSON object per line.
//
//   gpu_compare BUNDLE [FLAG VALUE]...      (driving.h)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "tools/gpu/driving.h"

namespace runnel {
namespace {

constexpr const char* kImages = "tests/golden/mnist_test_100.idx3-ubyte";
constexpr int kCount = 100;             // images
constexpr double kAllowed = 2e-3;       // bits per dimension
constexpr std::streamoff kHeader = 16;  // of the images' file

std::vector<std::vector<int32_t>> read_images(size_t bytes) {
  std::ifstream file(kImages, std::ios::binary);
  file.seekg(kHeader);
  const std::vector<char> all(std::istreambuf_iterator<char>(file), {});
  if (all.size() != bytes * kCount) give_up(std::string(kImages) + ": expected 100 images");
  std::vector<std::vector<int32_t>> images(kCount);
  for (size_t i = 0; i < all.size(); ++i) {
    images[i / bytes].push_back(static_cast<unsigned char>(all[i]));
  }
  return images;
}

double bits_per_dim(Model& model, const std::vector<int32_t>& image) {
  double bits = 0;
  for (const float log_prob : score(model, image)) bits -= double{log_prob} / std::numbers::ln2;
  return bits / static_cast<double>(image.size() - 1);
}

// One picture of each seed, drawn side by side.
std::vector<std::vector<int32_t>> draw(Model& model, int64_t values) {
  std::vector<Row> batch;
  for (SlotId slot = 0; slot < kCount; ++slot) {
    begin(model, slot, 1000 + slot, values);
    batch.push_back({slot, {}, Want::kNext});
  }
  std::vector<std::vector<int32_t>> pictures(kCount);
  std::vector<Emitted> emitted;
  for (int64_t i = 0; i < values; ++i) {
    finish(model, model.submit(batch, 1), emitted);
    for (const Emitted& at : emitted) pictures[at.row].push_back(at.value);
  }
  return pictures;
}

void compare_pictures(Model& cpu, Model& gpu, int64_t values) {
  const auto expected = draw(cpu, values);
  const auto found = draw(gpu, values);
  int64_t differ = 0;
  int same = 0;
  double apart = 0;
  for (int i = 0; i < kCount; ++i) {
    if (found[i].size() != expected[i].size()) give_up("the GPU draws another number of values");
    same += found[i] == expected[i] ? 1 : 0;
    for (size_t at = 0; at < expected[i].size(); ++at) {
      differ += found[i][at] != expected[i][at] ? 1 : 0;
      apart += std::abs(found[i][at] - expected[i][at]);
    }
  }
  const auto all = static_cast<double>(kCount * values);
  std::printf(
      "{\"pictures\": %d, \"same\": %d, \"values\": %.0f, \"values_that_differ\": %lld, "
      "\"mean_difference\": %.4f}\n",
      kCount, same, all, static_cast<long long>(differ), apart / all);
}

int run(const Settings& settings) {
  const auto gpu = gpu_of(settings);
  const auto cpu = make_cpu_backend({});
  const Bundle bundle = bundle_of(settings);
  if (!bundle.spec.image) give_up(settings.bundle + " is no model of images");
  const int64_t bytes = bundle.spec.image->bytes();
  const ModelLimits limits = {
      .slots = kCount, .rows = kCount, .values = static_cast<int>(bytes), .steps = 1};
  const auto on_cpu = model_of(bundle, **cpu, limits, Precision::kFp32);
  const auto on_gpu = model_of(bundle, *gpu, limits, settings.precision);
  double worst = 0;
  double sum = 0;
  for (const auto& image : read_images(static_cast<size_t>(bytes))) {
    const double found = bits_per_dim(*on_gpu, image);
    worst = std::max(worst, std::abs(found - bits_per_dim(*on_cpu, image)));
    sum += found;
  }
  std::printf(
      "{\"numerics\": \"%s\", \"images\": %d, \"bits_per_dim\": %.5f, \"worst_from_cpu\": %.2e, "
      "\"allowed\": %.0e}\n",
      on_gpu->layout().numerics.c_str(), kCount, sum / kCount, worst, kAllowed);
  std::fflush(stdout);
  compare_pictures(*on_cpu, *on_gpu, bytes - 1);
  return worst < kAllowed ? 0 : 1;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::run(runnel::settings_of(argc, argv)); }
