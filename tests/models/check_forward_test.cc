#include "models/check_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// Limits for one row, with `values` inputs in a step.
ModelLimits one_row(int values) { return {.slots = 1, .rows = 1, .values = values, .steps = 1}; }

// check_forward() for random weights, of which those whose name contains `of` are scaled. Steps
// have room for one of the values, for some or for all.
Status checked(const Spec& spec, float scale, const std::string& of = "") {
  const auto backend = make_cpu_backend({});
  EXPECT_TRUE(backend.ok());
  TensorMap tensors = random_tensors(spec, 1);
  for (auto& [name, numbers] : tensors) {
    if (name.find(of) == std::string::npos || name.find(".pe") != std::string::npos) continue;
    for (float& number : numbers) number *= scale;
  }
  const TempDir directory;
  write_bundle(directory.path() + "/bundle", spec, tensors);
  const auto bundle = load_bundle(directory.path() + "/bundle");
  EXPECT_TRUE(bundle.ok());
  Status status;
  for (const int values : {16, 3, 1}) {
    const auto model = make_model(*bundle, **backend, one_row(values));
    EXPECT_TRUE(model.ok());
    const Status found = check_forward(**model);
    EXPECT_TRUE(values == 16 || found.code() == status.code()) << values;
    status = found;
  }
  return status;
}

TEST(CheckForward, WeightsOfUsualSizeAreAccepted) {
  for (const Spec& spec : {small_symbol_spec(), small_image_spec()}) {
    EXPECT_TRUE(checked(spec, 1).ok());
    EXPECT_TRUE(checked(spec, 10).ok());
  }
}

TEST(CheckForward, WeightsThatOverflowAreRefused) {
  for (const Spec& spec : {small_symbol_spec(), small_image_spec()}) {
    const Status status = checked(spec, 1e36F);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("the forward pass does not work with these weights"));
  }
}

// Only one tensor is large each time, so that a norm cannot hide it from the outputs unnoticed.
TEST(CheckForward, ALargeHeadOrLargeValuesAreRefused) {
  const Status head = checked(small_symbol_spec(), 1e36F, "predictor");
  EXPECT_THAT(head.message(), HasSubstr("log-probability of value"));
  EXPECT_EQ(checked(small_symbol_spec(), 1e38F, "value_projection").code(), Code::kInvalidArgument);
}

// Counts the bytes of states that are read.
class CountingModel final : public Model {
 public:
  explicit CountingModel(Model& to) : to_(to) {}

  const Spec& spec() const override { return to_.spec(); }
  const StateLayout& layout() const override { return to_.layout(); }
  ModelLimits limits() const override { return to_.limits(); }
  DeviceKind device() const override { return to_.device(); }
  bool batch_changes_bits() const override { return to_.batch_changes_bits(); }
  void set(SlotId slot, const Control& control, bool zero_state) override {
    to_.set(slot, control, zero_state);
  }
  void penalize(SlotId slot, Penalized penalized) override { to_.penalize(slot, penalized); }
  void copy(SlotId from, SlotId to, int64_t inputs) override { to_.copy(from, to, inputs); }
  void read(SlotId slot, int64_t offset, std::span<std::byte> bytes) override {
    bytes_read += std::ssize(bytes);
    to_.read(slot, offset, bytes);
  }
  void write(SlotId slot, int64_t offset, std::span<const std::byte> bytes) override {
    to_.write(slot, offset, bytes);
  }
  void copy_piece(SlotId from, SlotId to, int64_t offset, int64_t bytes) override {
    to_.copy_piece(from, to, offset, bytes);
  }
  Ticket submit(std::span<const Row> rows, int steps) override { return to_.submit(rows, steps); }
  Result<bool> collect(Ticket ticket, std::vector<Emitted>& out) override {
    return to_.collect(ticket, out);
  }

  int64_t bytes_read = 0;

 private:
  Model& to_;
};

// With a long context, a state has gigabytes.
TEST(CheckForward, OnlyPagesInUseAreRead) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  const Bundle bundle = random_bundle(small_hybrid_spec(HybridStyle::kLfm2), 1);
  const auto made = make_model(bundle, **backend, one_row(16));
  ASSERT_TRUE(made.ok());
  CountingModel model(**made);
  EXPECT_TRUE(check_forward(model).ok());
  const StateLayout& layout = model.layout();
  EXPECT_EQ(model.bytes_read, layout.fixed_bytes() + layout.page_bytes);
  EXPECT_LT(model.bytes_read, layout.state_bytes);
}

}  // namespace
}  // namespace runnel
