#include "tests/golden/golden_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/models/model_harness.h"
#include "tests/models/recording_backend.h"

namespace runnel {
namespace {

constexpr int kFedAtOnce = 64;

// The part of sequence `index`, of `count` equally long sequences in a row.
std::vector<float> share(const std::vector<float>& all, size_t index, size_t count) {
  const auto each = static_cast<ptrdiff_t>(all.size() / count);
  const auto begin = all.begin() + static_cast<ptrdiff_t>(index) * each;
  return {begin, begin + each};
}

}  // namespace

std::vector<float> read(const WeightFile& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) ADD_FAILURE() << file.path() << " has no " << name;
  auto values = file.find(name, found->second.shape);
  EXPECT_TRUE(values.ok()) << values.status().message();
  return widened(*values);
}

WeightFile open(const std::string& path) {
  auto file = WeightFile::open(path);
  if (!file.ok()) ADD_FAILURE() << file.status().message();
  return std::move(file).value();
}

std::vector<Golden> load_golden(const std::string& folder, size_t count) {
  const WeightFile file = open(kGoldenFolder + folder + "/golden.bin");
  std::vector<Golden> all(count);
  for (size_t i = 0; i < count; ++i) {
    for (const float value : share(read(file, "values"), i, count)) {
      all[i].values.push_back(static_cast<int32_t>(value));
    }
    all[i].head = share(read(file, "head"), i, count);
    all[i].log_prob = share(read(file, "log_prob"), i, count);
  }
  return all;
}

Bundle load(const std::string& directory) {
  auto bundle = load_bundle(directory);
  if (!bundle.ok()) ADD_FAILURE() << bundle.status().message();
  return std::move(bundle).value();
}

double worst_row_error(const std::vector<float>& found, const std::vector<float>& expected,
                       int width) {
  double worst = 0.0;
  for (size_t row = 0; row + width <= expected.size(); row += width) {
    double error = 0.0;
    double norm = 0.0;
    for (size_t i = row; i < row + width; ++i) {
      error += std::pow(double{found[i]} - double{expected[i]}, 2);
      norm += std::pow(double{expected[i]}, 2);
    }
    worst = std::max(worst, std::sqrt(error / norm));
  }
  return worst;
}

double worst_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double worst = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(double{found[i]} - double{expected[i]}) /
                                std::max(1.0, std::abs(double{expected[i]})));
  }
  return worst;
}

Golden run_model(const Bundle& bundle, Backend& backend, const std::vector<int32_t>& values) {
  RecordingBackend recorder(backend);
  auto model =
      make_model(bundle, recorder, {.slots = 1, .rows = 1, .values = kFedAtOnce, .steps = 1});
  EXPECT_TRUE(model.ok());
  begin_sequence(*model.value(), 0, values[0]);
  Golden found;
  const std::vector<int32_t> rest(values.begin() + 1, values.end());
  found.log_prob = feed(*model.value(), 0, rest, kFedAtOnce - 1, Want::kScores);
  found.head = recorder.heads;
  return found;
}

Golden run_model(const Bundle& bundle, Isa isa, const std::vector<int32_t>& values) {
  const auto backend = make_cpu_backend({isa, 1});
  EXPECT_TRUE(backend.ok());
  return run_model(bundle, **backend, values);
}

}  // namespace runnel
