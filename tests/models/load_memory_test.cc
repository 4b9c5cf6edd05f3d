// Loading a model takes the memory that its file takes, and little more: weights go into the
// backend one after another, and are never there twice.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

// About 7.1 million weights a layer: one of them is a small part of the whole, as in large models.
Spec large_spec(int layers) {
  Spec spec = small_text_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  sizes.layers = layers;
  sizes.width = sizes.value_width = 768;
  sizes.heads = 12;
  sizes.query_size = sizes.value_size = 64;
  sizes.ffn = 3072;
  return spec;
}

// Small numbers of either sign, as quickly as a disk takes them: elements of the upper halves of
// fp32, which are those of bf16.
std::string random_bytes(int64_t elements, StoredType type, uint64_t& seed) {
  std::string bytes;
  bytes.reserve(elements * bytes_of(type));
  for (int64_t i = 0; i < elements; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const auto half = static_cast<uint16_t>(0x3c00 | (seed >> 48 & 0x80ff));
    if (type == StoredType::kF32) bytes.append(2, '\0');
    bytes += {static_cast<char>(half & 255), static_cast<char>(half >> 8)};
  }
  return bytes;
}

// Gives the bytes of model.safetensors.
int64_t write_large_bundle(const std::string& directory, const Spec& spec, StoredType type) {
  std::string header = "{";
  int64_t end = 0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    const int64_t begin = end;
    end += tensor.elements() * bytes_of(type);
    std::string shape;
    for (const int64_t size : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += (begin == 0 ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" +
              (type == StoredType::kF32 ? "F32" : "BF16") + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  write_file(directory + "/config.json", spec_to_json(spec));
  std::ofstream file(directory + "/model.safetensors", std::ios::binary);
  file << safetensors_file(header + "}", "");
  uint64_t seed = 1;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    file << random_bytes(tensor.elements(), type, seed);
  }
  file.close();
  EXPECT_TRUE(file.good());
  return static_cast<int64_t>(std::filesystem::file_size(directory + "/model.safetensors"));
}

// A line of /proc/self/status, "VmRSS:   1234 kB", in bytes.
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == key + ":" && file >> kilobytes) return kilobytes * 1024;
  }
  ADD_FAILURE() << "no " << key;
  return 0;
}

struct Case {
  const char* name;
  StoredType stored;
  Precision precision;
  double kept = 1.0;  // of the file's bytes
};

class LoadMemoryTest : public testing::TestWithParam<Case> {};

TEST_P(LoadMemoryTest, AModelNeedsItsFileAndATenth) {
  const auto [name, stored, precision, kept] = GetParam();
  const TempDir directory;
  const Spec spec = large_spec(stored == StoredType::kF32 ? 8 : 16);
  const int64_t file_bytes = write_large_bundle(directory.path(), spec, stored);
  ASSERT_GT(file_bytes, 200'000'000);
  const auto backend = make_cpu_backend({.isa = {}, .threads = 1});
  ASSERT_TRUE(backend.ok());

  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = status_bytes("VmRSS");
  const Result<Bundle> bundle = load_bundle(directory.path());
  ASSERT_TRUE(bundle.ok()) << bundle.status().message();
  EXPECT_LT(status_bytes("VmHWM") - before, file_bytes / 5) << "checked piece by piece";
  const auto model =
      make_model(*bundle, **backend, {.slots = 2, .rows = 2, .values = 2, .steps = 1}, precision);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const int64_t states = 2 * (*model)->layout().state_bytes;
  const int64_t peak = status_bytes("VmHWM") - before;
  RecordProperty("file_bytes", std::to_string(file_bytes));
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_LT(peak, static_cast<int64_t>(kept * file_bytes) + file_bytes / 10 + states);
}

INSTANTIATE_TEST_SUITE_P(, LoadMemoryTest,
                         testing::Values(Case{"Bf16AsBf16", StoredType::kBF16, Precision::kBf16},
                                         Case{"Bf16AsFp32", StoredType::kBF16, Precision::kFp32},
                                         Case{"Bf16AsInt8", StoredType::kBF16, Precision::kInt8,
                                              0.5},
                                         Case{"Fp32AsFp32", StoredType::kF32, Precision::kFp32}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace runnel
