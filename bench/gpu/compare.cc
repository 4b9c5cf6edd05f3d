// Compares a GPU's pictures, in fp32 and in bf16, with the CPU's in fp32: the bits per dimension of
// some held-out images, and how many values differ between pictures drawn from the same seeds.
// Prints one JSON object per line.
//
//   gpu_compare BUNDLE [FLAG VALUE]...      (driving.h)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numbers>

#include "bench/gpu/driving.h"
#include "kernels/cpu/cpu_backend.h"

namespace runnel {
namespace {

constexpr const char* kImages = "tests/golden/mnist_test_100.idx3-ubyte";
constexpr int kCount = 100;             // images
constexpr double kAllowed = 2e-3;       // bits per dimension
constexpr std::streamoff kHeader = 16;  // bytes, in the file of images

using Images = std::vector<std::vector<int32_t>>;

Images read_images(size_t bytes) {
  std::ifstream file(kImages, std::ios::binary);
  file.seekg(kHeader);
  const std::vector<char> all(std::istreambuf_iterator<char>(file), {});
  if (all.size() != bytes * kCount) give_up(std::string(kImages) + ": expected 100 images");
  Images images(kCount);
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

// Draws one picture for each seed, all in one batch.
Images draw(Model& model, int64_t values) {
  std::vector<Row> batch;
  for (SlotId slot = 0; slot < kCount; ++slot) {
    begin(model, slot, 1000 + slot, values);
    batch.push_back({slot, {}, Want::kNext});
  }
  Images pictures(kCount);
  std::vector<Emitted> emitted;
  for (int64_t i = 0; i < values; ++i) {
    finish(model, model.submit(batch, 1), emitted);
    for (const Emitted& at : emitted) pictures[at.row].push_back(at.value);
  }
  return pictures;
}

void compare_pictures(const Images& expected, Model& gpu, int64_t values) {
  const Images found = draw(gpu, values);
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
      "{\"numerics\": \"%s\", \"pictures\": %d, \"same\": %d, \"values\": %.0f, "
      "\"values_that_differ\": %lld, "
      "\"mean_difference\": %.4f}\n",
      gpu.layout().numerics.c_str(), kCount, same, all, static_cast<long long>(differ),
      apart / all);
}

// Returns false if an image's bits per dimension are too far from the CPU's.
bool compare_bits(const Images& images, const std::vector<double>& expected, Model& gpu) {
  double worst = 0;
  double sum = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const double found = bits_per_dim(gpu, images[i]);
    worst = std::max(worst, std::abs(found - expected[i]));
    sum += found;
  }
  std::printf(
      "{\"numerics\": \"%s\", \"images\": %d, \"bits_per_dim\": %.5f, \"worst_from_cpu\": %.2e, "
      "\"allowed\": %.0e}\n",
      gpu.layout().numerics.c_str(), kCount, sum / kCount, worst, kAllowed);
  std::fflush(stdout);
  return worst < kAllowed;
}

int run(const Settings& settings) {
  const Bundle bundle = bundle_of(settings);
  if (!bundle.spec.image) give_up(settings.bundle + " is no model of images");
  const int64_t bytes = bundle.spec.image->bytes();
  const Images images = read_images(static_cast<size_t>(bytes));
  const auto gpu = gpu_of(settings);
  const auto cpu = make_cpu_backend({});
  const ModelLimits limits = {
      .slots = kCount, .rows = kCount, .values = static_cast<int>(bytes), .steps = 1};
  const auto on_cpu = model_of(bundle, **cpu, limits, Precision::kFp32);
  std::vector<double> bits;
  for (const auto& image : images) bits.push_back(bits_per_dim(*on_cpu, image));
  const Images pictures = draw(*on_cpu, bytes - 1);
  bool good = true;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const auto on_gpu = model_of(bundle, *gpu, limits, precision);
    good = compare_bits(images, bits, *on_gpu) && good;
    compare_pictures(pictures, *on_gpu, bytes - 1);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::run(runnel::settings_of(argc, argv)); }
