#include "models/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "kernels/cpu/cpu_backend.h"
#include "models/bundle/gguf.h"
#include "models/families.h"
#include "models/state/layout.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using testing::HasSubstr;

TEST(MakeModel, TooManySlotsForTheMemoryAreRefused) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  Spec spec = small_image_spec();
  const auto model = make_model(random_bundle(spec, 1), **backend,
                                {.slots = 1 << 30, .rows = 1, .values = 1, .steps = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(model.status().message(), HasSubstr("lower the number of sessions"));
}

// Snapshots for rewinding take only the part of a state that does not grow.
TEST(MakeModel, TheErrorSaysHowMuchMemoryTheSessionsNeed) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  Spec spec = small_hybrid_spec(HybridStyle::kLfm2);
  const auto layers = family_of(spec).layers(spec);
  const int64_t whole = state_bytes_of(layers, spec.positions);
  const int64_t snapshot = state_bytes_of(layers, 0);
  constexpr int kSessions = 1 << 27, kSlots = 4;
  const auto model = make_model(random_bundle(spec, 1), **backend,
                                {.slots = kSessions * kSlots,
                                 .slots_of_session = kSlots,
                                 .rows = 1,
                                 .values = 1,
                                 .steps = 1});
  ASSERT_FALSE(model.ok());
  const std::string message = model.status().message();
  EXPECT_THAT(message, HasSubstr("not enough memory for 134217728 sessions and the weights"));
  const int64_t mib = std::stoll(message.substr(message.find("(about ") + 7));
  const int64_t expected = (whole + (kSlots - 1) * snapshot) * (kSessions >> 20);
  EXPECT_NEAR(static_cast<double>(mib), static_cast<double>(expected), 0.1 * expected) << message;
}

TEST(MakeModel, StatesGetHalfOfTheFreeMemoryByDefault) {
  EXPECT_EQ(slots_that_fit(int64_t{1} << 40, 1000, 1), kMostUnasked);
  EXPECT_EQ(slots_that_fit(200'999, 1000, 1), 100);
  EXPECT_EQ(slots_that_fit(1999, 1000, 1), 1);
  EXPECT_EQ(slots_that_fit(0, 0, 1), 1);
  EXPECT_EQ(slots_that_fit(200'999, 7000, 7), 14 * 7);
  EXPECT_EQ(slots_that_fit(int64_t{1} << 40, 7000, 7), kMostUnasked * 7);
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  EXPECT_GT((*backend)->free_memory(), 0);
  const auto model = make_model(random_bundle(small_image_spec(), 1), **backend,
                                {.slots = 0, .rows = 1, .values = 1, .steps = 1});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->limits().slots, kMostUnasked);
  EXPECT_EQ((*model)->device(), DeviceKind::kCpu);
}

TEST(MakeModel, SizesThatTheBackendDoesNotTakeAreRefused) {
  const auto backend = make_cpu_backend({});
  ASSERT_TRUE(backend.ok());
  Spec spec = small_mamba2_spec();
  std::get<Mamba2Spec>(spec.model).state_size = 1025;
  Bundle bundle = random_bundle(spec, 1);
  bundle.directory = "some/bundle";
  const auto model =
      make_model(bundle, **backend, {.slots = 1, .rows = 1, .values = 1, .steps = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(model.status().message().starts_with("some/bundle: ")) << model.status().message();
  EXPECT_NE(model.status().message().find("1024"), std::string::npos) << model.status().message();
}

// The error for a model in this file or directory.
Status refusal_of(const std::string& path, Precision precision) {
  const Result<Bundle> bundle = load_bundle(path);
  if (!bundle.ok()) return bundle.status();
  const auto backend = make_cpu_backend({.isa = {}, .threads = 2});
  EXPECT_TRUE(backend.ok());
  return make_model(*bundle, **backend, {.slots = 1, .rows = 1, .values = 8, .steps = 1}, precision)
      .status();
}

TEST(MakeModel, ANumberThatIsNotFiniteIsFoundInEveryTensorThatIsPacked) {
  const Spec spec = small_rwkv7_spec();
  const auto raw = raw_tensors(spec, random_tensors(spec, 1), StoredType::kBF16);
  const TempDir directory;
  write_file(directory.path() + "/config.json", spec_to_json(spec));
  const std::string path = directory.path() + "/model.safetensors";
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (!tensor.read) continue;
    SCOPED_TRACE(tensor.name);
    auto changed = raw;
    std::string& data = changed[tensor.name].data;
    data.replace(data.size() - 2, 2, "\x80\x7f");
    write_file(path, safetensors_file(changed));
    for (const Precision precision : {Precision::kFp32, Precision::kInt8}) {
      const Status refusal = refusal_of(directory.path(), precision);
      EXPECT_EQ(refusal.code(), Code::kInvalidArgument);
      EXPECT_TRUE(refusal.message().starts_with(path + ": tensor '" + tensor.name + "': element ["))
          << refusal.message();
      EXPECT_TRUE(refusal.message().ends_with(" is infinity; expected a finite number"));
    }
  }
}

TEST(MakeModel, ANumberThatIsNotFiniteIsFoundInAGgufFile) {
  std::ifstream from("tests/golden/gguf/rwkv7.gguf", std::ios::binary);
  std::string file(std::istreambuf_iterator<char>(from), {});
  const auto header = parse_gguf_header(std::as_bytes(std::span(file)), "rwkv7.gguf");
  ASSERT_TRUE(header.ok());
  const StoredTensor& tensor = header->tensors.at("blk.0.time_mix_key.weight");
  const auto end = static_cast<size_t>(header->data_begin + tensor.end);
  ASSERT_TRUE(tensor.type == StoredType::kF32 || tensor.type == StoredType::kBF16);
  file.replace(end - 2, 2, "\xc0\x7f");  // the upper half of the last number
  const TempDir directory;
  const std::string path = directory.path() + "/m.gguf";
  write_file(path, file);
  const Status refusal = refusal_of(path, Precision::kFp32);
  EXPECT_EQ(refusal.code(), Code::kInvalidArgument);
  EXPECT_TRUE(
      refusal.message().starts_with(path + ": tensor 'blk.0.time_mix_key.weight': element ["))
      << refusal.message();
  EXPECT_TRUE(refusal.message().ends_with(" is NaN; expected a finite number"));
}

}  // namespace
}  // namespace runnel
