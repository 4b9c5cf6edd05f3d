#include "tests/models/bundle/bundle_writer.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "kernels/quantize_blocks.h"
#include "tests/base/random_numbers.h"

namespace runnel {
namespace {

std::vector<float> sinusoids(int64_t length, int width) {
  std::vector<float> table;
  table.reserve(length * width);
  for (int64_t position = 0; position < length; ++position) {
    for (int column = 0; column < width; ++column) {
      const int pair = column / 2;
      const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * pair / width);
      table.push_back(static_cast<float>(column % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  }
  return table;
}

bool is_norm(const std::string& name) {
  return name.find("norm") != std::string::npos || name.find("ln") != std::string::npos;
}

std::vector<float> random_tensor(const ExpectedTensor& tensor, RandomNumbers& numbers) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  double mean = 0.0;
  double deviation = 0.1;  // biases
  if (tensor.name == "value_embedding.weight") {
    deviation = 1.0;
  } else if (tensor.name.ends_with(".sigma")) {
    mean = 1.0;
  } else if (tensor.name.ends_with(".omega")) {
    deviation = 1.0;
  } else if (tensor.vector || tensor.shape.size() == 3) {  // mixes and biases, convolutions
    deviation = 0.5;
  } else if (tensor.shape.size() == 2) {
    deviation = 1.0 / std::sqrt(static_cast<double>(tensor.shape[1]));
  } else if (is_norm(tensor.name) && tensor.name.ends_with(".weight")) {
    mean = 1.0;
  }
  std::vector<float> values(elements);
  for (float& value : values) {
    value = static_cast<float>(mean + deviation * numbers.normal());
  }
  return values;
}

// Rounds the low `drop` bits off, to the nearest, ties to even.
uint32_t round_off(uint32_t bits, int drop) {
  const uint32_t half = uint32_t{1} << (drop - 1);
  const uint32_t odd = bits >> drop & 1;
  return (bits + half - 1 + odd) >> drop;
}

uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(round_off(std::bit_cast<uint32_t>(value), 16));
}

uint16_t to_f16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::abs(value);
  if (size < 0x1p-14F) {  // subnormal: a multiple of 2^-24; nearbyint rounds ties to even
    return sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24F));
  }
  const uint32_t rounded = round_off(std::bit_cast<uint32_t>(size), 13);
  const uint32_t half = rounded - (112U << 10);
  return sign | static_cast<uint16_t>(half < 0x7c00 ? half : 0x7c00);  // beyond the range: infinity
}

uint16_t narrow(float value, StoredType type) {
  return type == StoredType::kBF16 ? to_bf16(value) : to_f16(value);
}

const char* dtype_name(StoredType type) { return format_of(type).name; }

}  // namespace

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "runnel_test_XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "the temporary directory can be written");
  path_ = std::move(name);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Spec small_image_spec() {
  Spec spec;
  LinearTransformerSpec& sizes = sizes_of(spec);
  spec.name = "small-image";
  sizes.layers = 2;
  sizes.width = 24;
  sizes.heads = 3;
  sizes.query_size = 8;
  sizes.value_size = 8;
  sizes.ffn = 40;
  spec.vocabulary = 256;
  sizes.value_width = 12;
  sizes.position = PositionKind::kTable;
  spec.positions = 19;
  spec.head = {HeadKind::kMixtureOfLogistics, 256, 3};
  spec.begin = Begin{};
  spec.image = ImageShape{5, 4, 1};
  return spec;
}

Spec small_symbol_spec() {
  Spec spec;
  LinearTransformerSpec& sizes = sizes_of(spec);
  spec.name = "small-symbols";
  sizes.layers = 2;
  sizes.width = 20;
  sizes.heads = 2;
  sizes.query_size = 6;
  sizes.value_size = 5;
  sizes.ffn = 33;
  sizes.activation = Activation::kGelu;
  spec.vocabulary = 11;
  sizes.combine = Combine::kAdd;
  sizes.value_width = 20;
  sizes.position = PositionKind::kSinusoidal;
  spec.head = {HeadKind::kCategorical, 11, 0};
  spec.symbols = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "\n"};
  spec.begin = Begin{0, {0.25F, 0.125F, 0.0F, 0.125F, 0.125F, 0.125F, 0.125F, 0.125F, 0, 0, 0}};
  return spec;
}

Spec small_text_spec() {
  Spec spec = small_symbol_spec();
  spec.name = "small-text";
  spec.vocabulary = 256;
  spec.head = {HeadKind::kCategorical, 256, 0};
  spec.symbols.clear();
  spec.begin.reset();
  spec.text = TextKind::kBytes;
  return spec;
}

Spec small_gated_spec() {
  Spec spec = small_symbol_spec();
  LinearTransformerSpec& sizes = sizes_of(spec);
  spec.name = "small-gated";
  sizes.feature_map = FeatureMap::kSmoothedFourier;
  sizes.features.map = sizes.feature_map;
  sizes.features.count = 12;
  sizes.features.temperature = 0.3F;
  sizes.features.smoothing = 0.5F;
  sizes.normalize = true;
  sizes.gate = true;
  return spec;
}

Spec small_softmax_spec() {
  Spec spec = small_symbol_spec();
  spec.name = "small-softmax";
  spec.positions = 300;
  sizes_of(spec).softmax = true;
  sizes_of(spec).softmax_scale = 0.6F;
  return spec;
}

Spec small_rwkv7_spec() {
  Spec spec;
  spec.name = "small-rwkv7";
  spec.vocabulary = 11;
  spec.head = {HeadKind::kCategorical, 11, 0};
  auto& sizes = spec.model.emplace<Rwkv7Spec>();
  sizes.layers = 3;
  sizes.width = 24;
  sizes.heads = 2;
  sizes.value_width = 10;
  sizes.ffn = 33;
  sizes.ranks = {.decay = 3, .rate = 5, .value = 4, .gate = 7};
  sizes.table_rows = 13;
  return spec;
}

Spec small_blocks_spec() {
  Spec spec = small_rwkv7_spec();
  auto& sizes = std::get<Rwkv7Spec>(spec.model);
  sizes.width = sizes.value_width = 64;
  sizes.heads = 4;
  sizes.ffn = 96;
  return spec;
}

Spec small_mamba2_spec() {
  Spec spec;
  spec.name = "small-mamba2";
  spec.vocabulary = 11;
  spec.head = {HeadKind::kCategorical, 11, 0};
  auto& sizes = spec.model.emplace<Mamba2Spec>();
  sizes.layers = 2;
  sizes.width = 20;
  sizes.heads = 6;
  sizes.head_size = 5;
  sizes.state_size = 7;
  sizes.groups = 2;
  sizes.bias = true;
  sizes.dt_least = 0.5F;
  sizes.dt_most = 0.75F;
  sizes.table_rows = 14;
  return spec;
}

namespace {

// Sets the options that differ between mixers.
void choose_options(GatedLinearSpec& sizes) {
  switch (sizes.mixer) {
    case GatedMixer::kGla:
      sizes.key_heads = 2;
      sizes.decay_rank = 3;
      sizes.map = Activation::kSquaredRelu;
      sizes.decay_limit = 0.02F;
      sizes.joined_ffn = sizes.tied = true;
      break;
    case GatedMixer::kRetNet:
      sizes.taps = 0;
      sizes.gate_in_norm_name = true;
      break;
    case GatedMixer::kDeltaNet:
      sizes.taps = 0;
      sizes.map = Activation::kElu;
      sizes.key_norm = KeyNorm::kSum;
      sizes.gate = sizes.beta = false;
      break;
    case GatedMixer::kGatedDeltaNet:
      sizes.key_heads = 2;
      sizes.key_norm = KeyNorm::kL2;
      sizes.convolution_bias = sizes.negative = true;
      break;
    case GatedMixer::kKda:
      sizes.decay_rank = 3;
      sizes.gate_rank = 5;
      sizes.key_norm = KeyNorm::kL2;
      break;
    case GatedMixer::kHgrn2:
      sizes.dk = 5;
      sizes.map = Activation::kSilu;
      sizes.gate = false;
      break;
  }
}

}  // namespace

Spec small_gated_linear_spec(GatedMixer mixer) {
  Spec spec;
  spec.name = "small-gated-linear";
  spec.vocabulary = 11;
  spec.head = {HeadKind::kCategorical, 11, 0};
  auto& sizes = spec.model.emplace<GatedLinearSpec>();
  sizes.mixer = mixer;
  sizes.layers = 2;
  sizes.width = 20;
  sizes.heads = sizes.key_heads = 4;
  sizes.dk = 6;
  sizes.dv = 7;
  sizes.ffn = 23;
  sizes.taps = 3;
  sizes.table_rows = 13;
  choose_options(sizes);
  return spec;
}

Spec small_rwkv6_spec(Rwkv6Version version) {
  Spec spec;
  spec.name = "small-rwkv6";
  spec.vocabulary = 11;
  spec.head = {HeadKind::kCategorical, 11, 0};
  auto& sizes = spec.model.emplace<Rwkv6Spec>();
  sizes.version = version;
  sizes.layers = 2;
  sizes.width = 24;
  sizes.heads = 2;
  sizes.ffn = 33;
  if (sizes.is_six()) {
    sizes.mix_rank = 3;
    sizes.decay_rank = 5;
  }
  sizes.table_rows = 13;
  return spec;
}

Spec small_mamba1_spec() {
  Spec spec;
  spec.name = "small-mamba1";
  spec.vocabulary = 11;
  spec.head = {HeadKind::kCategorical, 11, 0};
  auto& sizes = spec.model.emplace<Mamba1Spec>();
  sizes.layers = 2;
  sizes.width = 20;
  sizes.inner = 78;  // two heads of 39
  sizes.state_size = 7;
  sizes.rank = 3;
  sizes.bias = true;
  sizes.mixer_eps = 1e-5F;
  sizes.table_rows = 14;
  return spec;
}

Spec small_hybrid_spec(HybridStyle style) {
  Spec spec;
  spec.name = "small-hybrid";
  spec.vocabulary = 11;
  spec.head = {HeadKind::kCategorical, 11, 0};
  spec.positions = spec.most_positions = 300;
  auto& sizes = spec.model.emplace<HybridSpec>();
  sizes.style = style;
  const bool one_each = style == HybridStyle::kNemotronH;
  sizes.layers = one_each ? "rfaf" : style == HybridStyle::kFalconH1 ? "bb" : "rar";
  sizes.width = 20;
  sizes.ffn = 26;
  sizes.heads = 4;
  sizes.kv_heads = 2;
  sizes.head_size = 10;
  sizes.rotated = one_each ? 0 : 6;
  sizes.attention_scale = 0.3F;
  sizes.recurrent_heads = 4;
  sizes.key_heads = 2;
  sizes.dk = 5;
  sizes.dv = 7;
  sizes.taps = 3;
  sizes.factors.recurrent_out = 0.8F;
  sizes.factors.key = style == HybridStyle::kFalconH1 ? 1.3F : 1.0F;
  sizes.factors.ffn_gate = style == HybridStyle::kFalconH1 ? 0.9F : 1.0F;
  sizes.convolution_bias = sizes.in_bias = style != HybridStyle::kQwen35;
  sizes.ffn_bias = one_each;
  if (style == HybridStyle::kFalconH1) sizes.gated_norm = GatedNormKind::kNone;
  sizes.table_rows = 14;
  return spec;
}

Spec small_experts_spec(HybridStyle style) {
  Spec spec = small_hybrid_spec(style);
  const bool is_lfm2 = style == HybridStyle::kLfm2;
  const bool is_nemotron = style == HybridStyle::kNemotronH;
  auto& sizes = std::get<HybridSpec>(spec.model);
  sizes.experts = {.count = 5,
                   .chosen = 2,
                   .ffn = 12,
                   .first = is_lfm2 ? 1 : 0,
                   .shared = is_nemotron || style == HybridStyle::kQwen35 ? 17 : 0,
                   .bias = is_lfm2 || is_nemotron,
                   .factor = is_lfm2 || is_nemotron ? 1.5F : 1.0F};
  if (style == HybridStyle::kQwen35) sizes.ffn = 0;
  if (is_nemotron) {
    sizes.layers = "reaf";
    sizes.ffn_bias = false;
  }
  return spec;
}

std::vector<Spec> small_family_specs() {
  std::vector<Spec> specs = {small_symbol_spec(),
                             small_rwkv7_spec(),
                             small_mamba2_spec(),
                             small_rwkv6_spec(Rwkv6Version::kSix),
                             small_rwkv6_spec(Rwkv6Version::kFive),
                             small_mamba1_spec()};
  for (const GatedMixer mixer : kSmallMixers) specs.push_back(small_gated_linear_spec(mixer));
  for (const HybridStyle style : {HybridStyle::kQwen35, HybridStyle::kLfm2, HybridStyle::kGranite,
                                  HybridStyle::kFalconH1, HybridStyle::kNemotronH}) {
    specs.push_back(small_hybrid_spec(style));
  }
  for (const HybridStyle style :
       {HybridStyle::kQwen35, HybridStyle::kLfm2, HybridStyle::kGranite, HybridStyle::kNemotronH}) {
    specs.push_back(small_experts_spec(style));
  }
  Spec qwen3_next = small_experts_spec(HybridStyle::kQwen35);
  std::get<HybridSpec>(qwen3_next.model).interleaved = Interleaved::kAll;
  specs.push_back(std::move(qwen3_next));
  specs.push_back(small_softmax_spec());
  return specs;
}

std::map<std::string, std::vector<int64_t>> shapes_of(const Spec& spec) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    check(shapes.emplace(tensor.name, tensor.shape).second, tensor.name.c_str());
  }
  return shapes;
}

TensorMap random_tensors(const Spec& spec, uint64_t seed) {
  RandomNumbers numbers(seed);
  TensorMap tensors;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    tensors[tensor.name] = tensor.name == "pos_embedding.pe"
                               ? sinusoids(spec.positions, sizes_of(spec).position_width())
                               : random_tensor(tensor, numbers);
  }
  return tensors;
}

Bundle random_bundle(const Spec& spec, uint64_t seed) {
  Bundle bundle;
  bundle.spec = spec;
  if (spec.text == TextKind::kBytes) bundle.tokenizer = Tokenizer::of_bytes();
  const auto memory = std::make_shared<OwnedTensors>("random-" + std::to_string(seed));
  TensorMap tensors = random_tensors(spec, seed);
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (!tensor.read) continue;
    bundle.tensors[tensor.name] = memory->add(tensor.shape, std::move(tensors[tensor.name]));
  }
  bundle.memory = memory;
  return bundle;
}

Bundle in_blocks(const Bundle& bundle) {
  Bundle blocks = bundle;
  const auto memory = std::make_shared<OwnedTensors>("blocks");
  StoredType type = StoredType::kQ4_0;
  for (auto& [name, tensor] : blocks.tensors) {
    const std::vector<float> numbers = widened(tensor);
    const bool is_large = tensor.shape.size() >= 2 && tensor.shape.back() % 32 == 0;
    if (!is_large || !name.ends_with(".weight")) {
      tensor = memory->add(tensor.shape, numbers);
      continue;
    }
    type = type == StoredType::kQ4_0 ? StoredType::kQ8_0 : StoredType::kQ4_0;
    const auto bytes = static_cast<size_t>(bytes_of(type, tensor.elements()));
    std::vector<float> room((bytes + 3) / 4);
    quantize_blocks(type, numbers, std::as_writable_bytes(std::span(room)).data());
    const Tensor kept = memory->add({std::ssize(room)}, std::move(room));
    tensor = {type, tensor.shape, kept.bytes.first(bytes)};
  }
  blocks.memory = memory;
  return blocks;
}

float stored(float value, StoredType type) {
  if (type == StoredType::kF32) return value;
  const uint16_t half = narrow(value, type);
  if (type == StoredType::kBF16) return std::bit_cast<float>(uint32_t{half} << 16);
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) size = fraction == 0 ? INFINITY : NAN;
  return static_cast<float>(half >> 15 == 0 ? size : -size);
}

std::string raw_values(const std::vector<float>& values, StoredType type) {
  if (type == StoredType::kF32) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  std::string bytes;
  for (const float value : values) {
    const uint16_t half = narrow(value, type);
    bytes += {static_cast<char>(half & 255), static_cast<char>(half >> 8)};
  }
  return bytes;
}

std::string safetensors_file(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  file += data;
  return file;
}

std::string safetensors_file(const std::map<std::string, RawTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.data;
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_file(header.dump(), data);
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  check(file.good(), path.c_str());
}

std::map<std::string, RawTensor> raw_tensors(const Spec& spec, const TensorMap& tensors,
                                             StoredType type) {
  std::map<std::string, RawTensor> raw;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    const auto found = tensors.find(tensor.name);
    check(found != tensors.end(), tensor.name.c_str());
    raw[tensor.name] = {dtype_name(type), tensor.shape, raw_values(found->second, type)};
  }
  return raw;
}

void write_bundle(const std::string& directory, const Spec& spec, const TensorMap& tensors,
                  StoredType type) {
  const std::string config = spec_to_json(spec);
  const Result<Spec> parsed = parse_spec(config, "the spec of a test");
  check(parsed.ok(), parsed.status().message().c_str());
  std::filesystem::create_directories(directory);
  write_file(directory + "/config.json", config);
  write_file(directory + "/model.safetensors", safetensors_file(raw_tensors(spec, tensors, type)));
}

}  // namespace runnel
