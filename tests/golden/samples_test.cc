// Under the model, digits sampled by runnel are as likely as digits sampled by the PyTorch loop
// from the same weights: their mean scores (samples.json has PyTorch's, of 1,024 digits) differ by
// at most 0.05 bits.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "models/begin.h"
#include "tests/models/model_harness.h"

namespace runnel {
namespace {

constexpr int kDigits = 512;
constexpr int kBatch = 128;

// Draws kBatch digits, with seeds from `seed` on, and adds up their natural log-probabilities.
double draw(Model& model, uint64_t seed) {
  const Spec& spec = model.spec();
  const auto predicted = static_cast<int>(spec.max_length()) - 1;
  std::vector<Row> rows;
  for (SlotId slot = 0; slot < kBatch; ++slot) {
    const int32_t first = begin_value(*spec.begin, seed + slot, 0);
    begin_sequence(model, slot, first);
    sample_from(model, slot, first, 0, seed + slot, predicted);
    rows.push_back({slot, {}, Want::kNext});
  }
  double log_prob = 0.0;
  std::vector<Emitted> emitted;
  for (int step = 0; step < predicted; ++step) {
    emitted.clear();
    EXPECT_TRUE(model.collect(model.submit(rows, 1), emitted).value());
    EXPECT_EQ(emitted.size(), static_cast<size_t>(kBatch));
    for (const Emitted& e : emitted) log_prob += e.log_prob;
  }
  return log_prob;
}

TEST(Samples, DigitsAreAsLikelyAsThoseOfThePyTorchLoop) {
  std::ifstream file("tests/golden/zoo_mnist/samples.json");
  const double expected = nlohmann::json::parse(file).at("mean");
  const auto bundle = load_bundle("zoo/mnist-small");
  ASSERT_TRUE(bundle.ok()) << bundle.status().to_string();
  const CpuModel made =
      make_cpu_model(*bundle, {}, {.slots = kBatch, .rows = kBatch, .values = kBatch, .steps = 1});
  double log_prob = 0.0;
  for (uint64_t seed = 0; seed < kDigits; seed += kBatch) log_prob += draw(*made.model, seed);
  const double predicted = static_cast<double>(bundle->spec.max_length()) - 1;
  const double bits = -log_prob / (kDigits * predicted * std::numbers::ln2);
  RecordProperty("bits_per_dim", std::to_string(bits));
  EXPECT_NEAR(bits, expected, 0.05);
  std::printf("%d digits: %.4f bits per dimension; PyTorch: %.4f\n", kDigits, bits, expected);
}

}  // namespace
}  // namespace runnel
