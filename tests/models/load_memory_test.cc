// Loading a model takes little more memory than the size of its file: the weights go into the
// backend one at a time, so there are never two copies of all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "models/bundle/gguf.h"
#include "models/make_model.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/bundle/gguf_writer.h"

namespace runnel {
namespace {

// About 7.1 million weights a layer. As in large models, a layer is a small part of the model.
Spec deep_spec(int layers) {
  Spec spec = small_text_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  sizes.layers = layers;
  sizes.width = sizes.value_width = 768;
  sizes.heads = 12;
  sizes.query_size = sizes.value_size = 64;
  sizes.ffn = 3072;
  return spec;
}

// Repeats `pattern` up to this number of bytes, so that large files are quick to compute.
std::string repeated(const std::string& pattern, size_t bytes) {
  std::string all;
  all.reserve(bytes + pattern.size());
  while (all.size() < bytes) all += pattern;
  all.resize(bytes);
  return all;
}

constexpr int64_t kPattern = 1 << 16;  // elements

// Small numbers of either sign, whose low 16 bits are zero in fp32, so that they are exact in bf16.
std::string random_bytes(int64_t elements, StoredType type, uint64_t& seed) {
  std::string bytes;
  for (int64_t i = 0; i < std::min(elements, kPattern); ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const auto half = static_cast<uint16_t>(0x3c00 | (seed >> 48 & 0x80ff));
    if (type == StoredType::kF32) bytes.append(2, '\0');
    bytes += {static_cast<char>(half & 255), static_cast<char>(half >> 8)};
  }
  return repeated(bytes, elements * bytes_of(type));
}

// Returns the bytes of model.safetensors.
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

// An RWKV-7 with about 7.1 million weights a layer, and an embedding and a head of the same size.
Spec large_gguf_spec(int layers) {
  Spec spec = small_rwkv7_spec();
  auto& sizes = std::get<Rwkv7Spec>(spec.model);
  sizes.names = Rwkv7Names::kGguf;
  sizes.layers = layers;
  sizes.width = sizes.value_width = 768;
  sizes.heads = 12;
  sizes.ffn = 3072;
  sizes.ranks = {.decay = 32, .rate = 32, .value = 32, .gate = 64};
  sizes.table_rows = spec.vocabulary = spec.head.values = 8192;
  return spec;
}

// Random blocks of Q4_0 or Q8_0 whose scale is 2^-8.
std::string random_blocks(int64_t elements, StoredType type, uint64_t& seed) {
  std::string bytes;
  const auto pattern = static_cast<size_t>(bytes_of(type, kPattern));
  while (bytes.size() < pattern) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    bytes += gguf_bytes(seed >> 32 | seed << 32);
  }
  bytes.resize(pattern);
  for (size_t at = 0; at < pattern; at += format_of(type).bytes) bytes.replace(at, 2, "\0\x1c", 2);
  return repeated(bytes, static_cast<size_t>(bytes_of(type, elements)));
}

// A GGUF file with its large matrices in blocks. Returns the bytes of the file.
int64_t write_large_gguf(const std::string& path, StoredType type) {
  const Spec spec = large_gguf_spec(type == StoredType::kQ4_0 ? 28 : 16);
  const auto& sizes = std::get<Rwkv7Spec>(spec.model);
  GgufWriter writer;
  writer.text("general.architecture", "rwkv7");
  for (const auto& [key, value] :
       {std::pair("block_count", sizes.layers), std::pair("embedding_length", sizes.width),
        std::pair("feed_forward_length", sizes.ffn), std::pair("wkv.head_size", sizes.key_size()),
        std::pair("attention.decay_lora_rank", sizes.ranks.decay),
        std::pair("attention.iclr_lora_rank", sizes.ranks.rate),
        std::pair("attention.value_residual_mix_lora_rank", sizes.ranks.value),
        std::pair("attention.gate_lora_rank", sizes.ranks.gate)}) {
    writer.number("rwkv7." + std::string(key), static_cast<uint32_t>(value));
  }
  uint64_t seed = 1;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (!tensor.read) continue;
    const bool is_large = tensor.elements() > 300'000;
    const StoredType stored = is_large ? type : StoredType::kF32;
    writer.tensor({tensor.name,
                   gguf_type(stored),
                   {tensor.shape.rbegin(), tensor.shape.rend()},
                   is_large ? random_blocks(tensor.elements(), type, seed)
                            : random_bytes(tensor.elements(), StoredType::kF32, seed)});
  }
  write_file(path, writer.file());
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

// The bytes in a line of /proc/self/status, such as "VmRSS:   1234 kB".
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == key + ":" && file >> kilobytes) return kilobytes * 1024;
  }
  ADD_FAILURE() << "no " << key;
  return 0;
}

// The array elements that take the most memory for each byte of the file: empty strings, and
// strings just too long to be stored inside an object.
TEST(LoadMemory, AHeaderTakesABoundedMultipleOfItsBytes) {
  constexpr int64_t kPairs = gguf_bounds::kElements / 2 - 64;
  const std::string pair = gguf_string("") + gguf_string("sixteen letters.");
  const std::string file = GgufWriter()
                               .pair("k", 9,
                                     gguf_bytes(uint32_t{8}) + gguf_bytes(uint64_t{2 * kPairs}) +
                                         repeated(pair, static_cast<size_t>(kPairs) * pair.size()))
                               .file();
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const int64_t before = status_bytes("VmRSS");
  const auto header = parse_gguf_header(std::as_bytes(std::span(file)), "m.gguf");
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_LT(status_bytes("VmHWM") - before, 6 * gguf_bounds::kHeaderBytes);
}

struct LoadCase {
  const char* name;
  StoredType stored;
  Precision precision;
  double kept = 1.0;  // fraction of the file's bytes

  friend void PrintTo(const LoadCase& of, std::ostream* out) { *out << of.name; }
};

class LoadMemoryTest : public testing::TestWithParam<LoadCase> {};

TEST_P(LoadMemoryTest, AModelNeedsAtMostTheSizeOfItsFileAndATenth) {
  const auto [name, stored, precision, kept] = GetParam();
  const TempDir directory;
  const std::string path = is_blocks(stored) ? directory.path() + "/m.gguf" : directory.path();
  const int64_t file_bytes =
      is_blocks(stored)
          ? write_large_gguf(path, stored)
          : write_large_bundle(path, deep_spec(stored == StoredType::kF32 ? 8 : 16), stored);
  ASSERT_GT(file_bytes, is_blocks(stored) ? 140'000'000 : 200'000'000);
  const auto backend = make_cpu_backend({.isa = {}, .threads = 1});
  ASSERT_TRUE(backend.ok());

  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const int64_t before = status_bytes("VmRSS");
  const Result<Bundle> bundle = load_bundle(path);
  ASSERT_TRUE(bundle.ok()) << bundle.status().message();
  EXPECT_LT(status_bytes("VmHWM") - before, file_bytes / 5) << "mapped, and not read";
  const auto model =
      make_model(*bundle, **backend, {.slots = 2, .rows = 2, .values = 2, .steps = 1}, precision);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const int64_t states = 2 * (*model)->layout().state_bytes;
  const int64_t peak = status_bytes("VmHWM") - before;
  RecordProperty("file_bytes", std::to_string(file_bytes));
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_LT(peak, static_cast<int64_t>(kept * file_bytes) + file_bytes / 10 + states);
}

INSTANTIATE_TEST_SUITE_P(
    , LoadMemoryTest,
    testing::Values(LoadCase{"Bf16AsBf16", StoredType::kBF16, Precision::kBf16},
                    LoadCase{"Bf16AsFp32", StoredType::kBF16, Precision::kFp32},
                    LoadCase{"Bf16AsInt8", StoredType::kBF16, Precision::kInt8, 0.5},
                    LoadCase{"Fp32AsFp32", StoredType::kF32, Precision::kFp32},
                    LoadCase{"Q4_0AsBlocks", StoredType::kQ4_0, Precision::kBlocks},
                    LoadCase{"Q8_0AsBlocks", StoredType::kQ8_0, Precision::kBlocks}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace runnel
