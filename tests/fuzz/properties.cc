#include "tests/fuzz/properties.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "config/key_file.h"
#include "models/bundle/bundle.h"
#include "models/bundle/config.h"
#include "models/bundle/safetensors.h"
#include "models/bundle/weight_file.h"
#include "models/text/nfc.h"
#include "models/text/tokenizer.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using Tensors = StoredTensors;

int64_t values_in(const Json& tree) {
  int64_t values = 1;
  if (tree.is_structured()) {
    for (const Json& child : tree) values += values_in(child);
  }
  return values;
}

int depth_of(const Json& tree) {
  if (!tree.is_structured()) return 0;
  int depth = 0;
  for (const Json& child : tree) depth = std::max(depth, depth_of(child));
  return depth + 1;
}

bool within(int64_t size, int64_t most) { return size >= 1 && size <= most; }
bool is_eps(float eps) { return eps > 0 && eps <= 1; }

void check_sizes(const LinearTransformerSpec& sizes, const Spec& spec) {
  check(within(sizes.layers, kMaxLayers) && within(sizes.width, kMaxWidth), "layers, width");
  check(within(sizes.ffn, kMaxWidth), "ffn");
  check(within(sizes.heads, kMaxWidth) && within(sizes.query_size, kMaxWidth) &&
            within(sizes.value_size, kMaxWidth),
        "heads");
  check(within(int64_t{sizes.heads} * sizes.query_size, kMaxWidth), "heads * query_size");
  check(within(int64_t{sizes.heads} * sizes.value_size, kMaxWidth), "heads * value_size");
  check(within(int64_t{sizes.heads} * sizes.feature_size(), kMaxWidth), "heads * feature_size");
  check(!is_random(sizes.feature_map) ||
            (sizes.features.map == sizes.feature_map && sizes.features.projections() > 0 &&
             sizes.features.temperature > 0 && sizes.features.smoothing > 0),
        "features");
  check(is_random(sizes.feature_map) || !sizes.normalize, "normalize is of random features");
  check(!sizes.softmax ||
            (sizes.softmax_scale > 0 && !sizes.gate && within(spec.positions, kMaxContext) &&
             sizes.feature_map == FeatureMap::kElu),
        "softmax has a scale, a last position and nothing of linear attention");
  check(is_eps(sizes.attention_eps) && is_eps(sizes.norm_eps), "attention.eps, norm.eps");
  check(spec.positions > 0 || sizes.position != PositionKind::kTable, "a table has a length");
  check(sizes.value_width >= 1, "value_width");
  const int beside = sizes.combine == Combine::kAdd ? 0 : sizes.position_width();
  check(sizes.value_width + beside == sizes.width, "the input fills the width");
  check(sizes.position == PositionKind::kNone || sizes.position_width() >= 1, "position_width");
  const bool mixture = spec.head.kind == HeadKind::kMixtureOfLogistics;
  check(mixture ? within(spec.head.components, 256) && spec.vocabulary == 256
                : spec.head.components == 0,
        "components");
}

void check_sizes(const Rwkv7Spec& sizes, const Spec& spec) {
  check(within(sizes.layers, kMaxLayers) && within(sizes.ffn, kMaxWidth), "layers, ffn");
  check(within(sizes.width, kMaxWidth) && within(sizes.value_width, kMaxWidth), "widths");
  check(sizes.key_size() * sizes.heads == sizes.width, "heads divide the width");
  check(sizes.value_size() * sizes.heads == sizes.value_width, "heads divide the values");
  for (const int rank :
       {sizes.ranks.decay, sizes.ranks.rate, sizes.ranks.value, sizes.ranks.gate}) {
    check(within(rank, kMaxWidth), "ranks");
  }
  check(is_eps(sizes.norm_eps) && is_eps(sizes.head_norm_eps), "norm_eps, head_norm_eps");
  check(sizes.key_eps == 0 || is_eps(sizes.key_eps), "key_eps");
  check(spec.vocabulary <= sizes.table_rows && sizes.table_rows <= kMaxVocabulary, "table_rows");
  check(spec.positions == 0 && spec.head.kind == HeadKind::kCategorical, "endless, categorical");
}

void check_sizes(const Mamba2Spec& sizes, const Spec& spec) {
  check(within(sizes.layers, kMaxLayers) && within(sizes.width, kMaxWidth), "layers, width");
  check(within(int64_t{sizes.heads} * sizes.head_size, kMaxWidth), "heads * head_size");
  check(within(int64_t{sizes.groups} * sizes.state_size, kMaxWidth), "groups * state_size");
  check(sizes.heads % sizes.groups == 0, "groups divide the heads");
  check(within(sizes.taps - 1, 15), "taps");
  check(is_eps(sizes.norm_eps), "norm_eps");
  check(sizes.dt_least >= 0 && sizes.dt_least <= sizes.dt_most, "dt_least, dt_most");
  check(spec.vocabulary <= sizes.table_rows && sizes.table_rows <= kMaxVocabulary, "table_rows");
  check(spec.positions == 0 && spec.head.kind == HeadKind::kCategorical, "endless, categorical");
}

void check_sizes(const GatedLinearSpec& sizes, const Spec& spec) {
  check(within(sizes.layers, kMaxLayers) && within(sizes.width, kMaxWidth), "layers, width");
  check(within(int64_t{sizes.heads} * sizes.dk, kMaxWidth), "heads * key_size");
  check(within(int64_t{sizes.heads} * sizes.dv, kMaxWidth), "heads * value_size");
  check(sizes.heads % sizes.key_heads == 0, "key_heads divide the heads");
  check(within(sizes.ffn, kMaxWidth), "ffn");
  check(sizes.taps == 0 || within(sizes.taps - 1, 15), "taps");
  check(is_eps(sizes.norm_eps) && sizes.decay_limit >= 0, "norm_eps, decay_limit");
  check(spec.vocabulary <= sizes.table_rows && sizes.table_rows <= kMaxVocabulary, "table_rows");
  check(spec.positions == 0 && spec.head.kind == HeadKind::kCategorical, "endless, categorical");
}

void check_sizes(const Rwkv6Spec& sizes, const Spec& spec) {
  check(within(sizes.layers, kMaxLayers) && within(sizes.width, kMaxWidth), "layers, width");
  check(sizes.head_size() * sizes.heads == sizes.width, "heads divide the width");
  check(within(sizes.ffn, kMaxWidth), "ffn");
  check(
      !sizes.is_six() || (within(sizes.mix_rank, kMaxWidth) && within(sizes.decay_rank, kMaxWidth)),
      "ranks");
  check(is_eps(sizes.norm_eps) && is_eps(sizes.head_norm_eps), "norm_eps, head_norm_eps");
  check(spec.vocabulary <= sizes.table_rows && sizes.table_rows <= kMaxVocabulary, "table_rows");
  check(spec.positions == 0 && spec.head.kind == HeadKind::kCategorical, "endless, categorical");
}

void check_sizes(const Mamba1Spec& sizes, const Spec& spec) {
  check(within(sizes.layers, kMaxLayers) && within(sizes.width, kMaxWidth), "layers, width");
  check(within(sizes.inner, kMaxWidth) && within(sizes.state_size, kMaxWidth), "inner, state_size");
  check(sizes.inner % sizes.head_size() == 0, "heads divide the channels");
  check(within(sizes.rank, kMaxWidth) && within(sizes.taps - 1, 15), "rank, taps");
  check(is_eps(sizes.norm_eps) && (sizes.mixer_eps == 0 || is_eps(sizes.mixer_eps)), "eps");
  check(spec.vocabulary <= sizes.table_rows && sizes.table_rows <= kMaxVocabulary, "table_rows");
  check(spec.positions == 0 && spec.head.kind == HeadKind::kCategorical, "endless, categorical");
}

void check_experts(const HybridSpec& sizes) {
  const ExpertSizes& experts = sizes.experts;
  check(experts.count > 0 || !sizes.has('e'), "layers of experts have experts");
  if (experts.count == 0) return;
  check(within(experts.count, kMaxExperts) && within(experts.ffn, kMaxFfn), "experts, their width");
  check(within(experts.chosen, std::min(experts.count, kMaxChosenExperts)), "chosen experts");
  check(experts.first >= 0 && experts.first < sizes.depth(), "the first layer with experts");
  check(experts.shared >= 0 && experts.shared <= kMaxFfn, "the shared expert's width");
}

void check_sizes(const HybridSpec& sizes, const Spec& spec) {
  check(within(sizes.depth(), kMaxLayers) && within(sizes.width, kMaxWidth), "layers, width");
  check(sizes.layers.find_first_not_of("rabfe") == std::string::npos, "kinds of layers");
  check_experts(sizes);
  if (sizes.has_attention()) {
    check(within(int64_t{sizes.heads} * sizes.head_size, kMaxWidth), "heads * head_size");
    check(sizes.heads % sizes.kv_heads == 0, "kv_heads divide the heads");
    check(sizes.rotated % 2 == 0 && sizes.rotated <= sizes.head_size, "rotated");
  }
  if (sizes.has_recurrence()) check(within(sizes.taps - 1, 15), "taps");
  if (sizes.has_recurrence() && sizes.style != HybridStyle::kLfm2) {
    check(within(int64_t{sizes.recurrent_heads} * sizes.dv, kMaxWidth), "heads * value_size");
    check(within(int64_t{sizes.key_heads} * sizes.dk, kMaxWidth), "key_heads * key_size");
    check(sizes.recurrent_heads % sizes.key_heads == 0, "key_heads divide the heads");
  }
  check(is_eps(sizes.norm_eps), "norm_eps");
  check(spec.vocabulary <= sizes.table_rows && sizes.table_rows <= kMaxVocabulary, "table_rows");
  check(within(spec.positions, kUsualPositions) && within(spec.most_positions, kMaxContext),
        "positions");
}

void check_sizes(const Spec& spec) {
  std::visit([&](const auto& sizes) { check_sizes(sizes, spec); }, spec.model);
  check(within(spec.vocabulary, kMaxVocabulary), "values");
  check(spec.head.values == spec.vocabulary, "head.values");
  check(spec.positions >= 0 && spec.positions <= kMaxPositions, "positions");
  check(!spec.name.empty() && std::ssize(spec.name) <= kMaxNameLength, "name");
}

void check_values(const Spec& spec) {
  if (spec.image.has_value()) {
    check(spec.symbols.empty(), "an image has no symbols");
    check(spec.image->bytes() == spec.max_length(), "an image fills the positions");
    check(spec.image->channels == 1 || spec.image->channels == 3, "channels");
    check(spec.vocabulary <= 256, "an image is made of bytes");
  }
  if (spec.text != TextKind::kNone) {
    check(!spec.image.has_value() && spec.symbols.empty(), "text has neither image nor symbols");
    check(spec.head.kind == HeadKind::kCategorical, "text has a categorical head");
    check(spec.text != TextKind::kBytes || spec.vocabulary == 256, "bytes are 256 values");
  }
  check(spec.symbols.empty() || std::ssize(spec.symbols) == spec.vocabulary, "symbols");
  check(std::ranges::all_of(spec.symbols, [](const auto& s) { return s.size() - 1 < 64; }),
        "length of a symbol");
  if (!spec.begin.has_value()) return;
  check(spec.begin->value >= 0 && spec.begin->value < spec.vocabulary, "begin.value");
  if (spec.begin->histogram.empty()) return;
  check(std::ssize(spec.begin->histogram) == spec.vocabulary, "begin.histogram");
  double sum = 0.0;
  for (const float weight : spec.begin->histogram) {
    check(weight >= 0 && weight <= 1.000001F, "a weight of the histogram");
    sum += double{weight};
  }
  check(std::abs(sum - 1.0) < 1e-6, "the histogram sums to 1");
}

// The positions that a cache has, which are whole pages.
__int128 cached_positions(const Spec& spec) {
  return (spec.positions + kPagePositions - 1) / kPagePositions * kPagePositions;
}

__int128 state_floats(const LinearTransformerSpec& sizes, const Spec& spec) {
  if (sizes.softmax) {
    return cached_positions(spec) * sizes.layers * sizes.heads *
           (sizes.query_size + sizes.value_size);
  }
  const __int128 head = static_cast<__int128>(sizes.feature_size()) * (sizes.value_size + 1);
  return head * sizes.layers * sizes.heads;
}

__int128 state_floats(const Rwkv7Spec& sizes) {
  const __int128 head = static_cast<__int128>(sizes.key_size()) * sizes.value_size();
  return (head * sizes.heads + 2 * sizes.width) * sizes.layers;
}

__int128 state_floats(const Mamba2Spec& sizes) {
  const __int128 inner = static_cast<__int128>(sizes.heads) * sizes.head_size;
  const __int128 keys = static_cast<__int128>(sizes.groups) * sizes.state_size;
  return (inner * sizes.state_size + (sizes.taps - 1) * (inner + 2 * keys)) * sizes.layers;
}

__int128 state_floats(const GatedLinearSpec& sizes) {
  const __int128 head = static_cast<__int128>(sizes.dk) * sizes.dv;
  const int64_t inputs = int64_t{sizes.query_width()} + sizes.key_width() + sizes.value_width();
  const int64_t held = sizes.taps > 0 ? sizes.taps - 1 : 0;
  return (head * sizes.heads + held * inputs) * sizes.layers;
}

__int128 state_floats(const Rwkv6Spec& sizes) {
  const __int128 head = static_cast<__int128>(sizes.head_size()) * sizes.head_size();
  return (head * sizes.heads + 2 * sizes.width) * sizes.layers;
}

__int128 state_floats(const Mamba1Spec& sizes) {
  const __int128 inner = sizes.inner;
  return (inner * sizes.state_size + (sizes.taps - 1) * inner) * sizes.layers;
}

__int128 state_floats(const HybridSpec& sizes, const Spec& spec) {
  __int128 floats = 0;
  const __int128 cached = cached_positions(spec);
  for (int i = 0; i < sizes.depth(); ++i) {
    if (sizes.is_recurrent(i)) {
      floats += static_cast<__int128>(sizes.taps - 1) * sizes.channels();
      if (sizes.style != HybridStyle::kLfm2) {
        floats += static_cast<__int128>(sizes.recurrent_heads) * sizes.dk * sizes.dv;
      }
    }
    if (sizes.attends(i)) floats += cached * 2 * sizes.kv_heads * sizes.head_size;
  }
  return floats;
}

template <typename Sizes>
__int128 state_floats(const Sizes& sizes, const Spec& /*spec*/) {
  return state_floats(sizes);
}

// Checks derived sizes with wider arithmetic than that of the spec.
void check_derived(const Spec& spec) {
  __int128 trained = 0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    __int128 elements = 1;
    for (const int64_t size : tensor.shape) {
      check(size >= 1, "a tensor has elements");
      elements *= size;
    }
    const bool is_fixed = tensor.name == "pos_embedding.pe" || tensor.name.ends_with(".omega");
    if (tensor.read && !is_fixed) trained += elements;
  }
  check(trained == spec.parameters(), "parameters() counts the trained tensors");
  const __int128 floats =
      std::visit([&](const auto& sizes) { return state_floats(sizes, spec); }, spec.model);
  check(floats * 4 == spec.state_bytes(), "state_bytes() does not overflow");
}

void check_round_trip(const Spec& spec) {
  const std::string written = spec_to_json(spec);
  const Result<Spec> back = parse_spec(written, "back");
  check(back.ok(), "what spec_to_json() writes is a spec");
  check(spec_to_json(*back) == written, "reading and writing again changes nothing");
  check(back->symbols == spec.symbols, "symbols");
  check(back->text == spec.text, "text");
  check(back->begin.has_value() == spec.begin.has_value(), "begin");
  if (!spec.begin.has_value()) return;
  check(back->begin->histogram == spec.begin->histogram, "begin.histogram");
}

void check_tiling(const Tensors& tensors, int64_t data_bytes) {
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const auto& [name, tensor] : tensors) {
    check(!name.empty() && name.size() <= 512, "name");
    const int64_t bytes = tensor.type == StoredType::kF32 ? 4 : 2;
    check(std::ranges::all_of(tensor.shape, [](int64_t size) { return size >= 0; }), "shape");
    check(tensor.elements() * bytes == tensor.end - tensor.begin, "a tensor takes its bytes");
    places.emplace_back(tensor.begin, tensor.end);
  }
  std::ranges::sort(places);
  int64_t end = 0;
  for (const auto& place : places) {
    check(place.first == end && place.second >= end, "tensors follow one another");
    end = place.second;
  }
  check(end == data_bytes, "tensors fill the data");
}

std::string written_header(const Tensors& tensors) {
  Json header = Json::object();
  for (const auto& [name, tensor] : tensors) {
    const char* const types[] = {"F32", "F16", "BF16"};
    header[name] = {{"dtype", types[static_cast<int>(tensor.type)]},
                    {"shape", tensor.shape},
                    {"data_offsets", {tensor.begin, tensor.end}}};
  }
  return header.dump();
}

void check_header(const Tensors& tensors, int64_t data_bytes) {
  check_tiling(tensors, data_bytes);
  const auto back = parse_safetensors_header(written_header(tensors), data_bytes, "back");
  check(back.ok() && back->size() == tensors.size(), "a header written again is well-formed");
  for (const auto& [name, tensor] : tensors) {
    const StoredTensor& other = back->at(name);
    check(other.type == tensor.type && other.shape == tensor.shape && other.begin == tensor.begin &&
              other.end == tensor.end,
          "a header written again reads the same");
  }
}

void check_reads(const WeightFile& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    const Result<Tensor> found = file.find(name, tensor.shape);
    check(found.ok() && found->elements() == tensor.elements(), "find() gives every element");
    if (const Status s = check_finite(*found, name, file.path()); !s.ok()) {
      check_refusal(s, file.path());
      continue;
    }
    check(std::ranges::all_of(widened(*found), [](float v) { return std::isfinite(v); }), "finite");
    std::vector<int64_t> other = tensor.shape;
    other.push_back(1);
    check(!file.find(name, other).ok(), "find() refuses another shape");
  }
}

// {"Ā":0,...}: the characters that name bytes, and words that merges can make of them.
std::string byte_vocabulary() {
  std::string text = "{";
  int other = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const int character = prints ? byte : other++;
    char escaped[16];
    std::snprintf(escaped, sizeof(escaped), "\"\\u%04x\":", static_cast<unsigned>(character));
    text += escaped + std::to_string(byte) + ",";
    std::snprintf(escaped, sizeof(escaped), "\"<0x%02X>\":", static_cast<unsigned>(byte));
    text += escaped + std::to_string(1000 + byte) + ",";
  }
  return text + R"("ab":256,"abc":257,"\u0120a":258,"<|end|>":259,"\u2581":260,"\u2581a":261})";
}

// One line for each byte, like the start of an RWKV vocabulary.
std::string byte_lines() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    char line[32];
    std::snprintf(line, sizeof(line), "%d b'\\x%02x' 1\n", byte + 1, static_cast<unsigned>(byte));
    text += line;
  }
  return text;
}

// `text` composed and without white space, because white space may move.
std::string without_spaces(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t spaces = text.starts_with(kSpaceMark) ? kSpaceMark.size() : space_at_start(text);
    if (spaces == 0) out += text.front();
    text.remove_prefix(std::max<size_t>(spaces, 1));
  }
  return nfc(out);
}

void check_encoding(const Tokenizer& tokenizer, std::string_view text) {
  const Result<std::vector<int32_t>> values = tokenizer.encode(text);
  const bool is_utf8 = valid_utf8_prefix(text) == text.size();
  if (!values.ok()) {
    check(values.status().code() == Code::kInvalidArgument, "a refused text");
    return;
  }
  check(is_utf8, "text is UTF-8");
  std::string bytes;
  for (const int32_t value : *values) {
    check(value >= 0 && value < tokenizer.size(), "a value that there is");
    check(!tokenizer.bytes(value).empty(), "a value stands for something");
    bytes += tokenizer.bytes(value);
  }
  check(valid_utf8_prefix(bytes) == bytes.size(), "values of whole characters are whole ones");
  check(without_spaces(bytes) == without_spaces(text), "values are the text that they came from");
}

void check_encodings(const Tokenizer& tokenizer, std::string_view text) {
  for (const std::string_view example :
       {std::string_view(), text.substr(0, 200),
        std::string_view("abcab abc  <|end|>\r\n  it's 12"),
        std::string_view("\xe5\xb7\x9d\xf0\x9f\x8c\x8a \xc3\xa9\xcc\x81\xcc\x96\t"),
        std::string_view("\0\x7f\n", 3)}) {
    check_encoding(tokenizer, example);
  }
}

}  // namespace

void check_refusal(const Status& status, const std::string& file) {
  check(status.code() == Code::kInvalidArgument, "malformed input is INVALID_ARGUMENT");
  check(status.message().starts_with(file + ": "), "an error starts with the file's name");
  check(status.message().size() < 2000, "an error is one short line");
  check(std::ranges::all_of(status.message(), [](char c) { return c >= 0x20 && c < 0x7f; }),
        "an error is printable");
}

bool check_json(std::string_view text) {
  constexpr JsonLimits kLimits{.bytes = 2000, .values = 64, .depth = 6};
  const std::string file = "fuzz.json";
  const Result<Json> tree = parse_json(text, file, kLimits);
  if (!tree.ok()) {
    check_refusal(tree.status(), file);
    return false;
  }
  check(std::ssize(text) <= kLimits.bytes, "the text is within its limit");
  check(values_in(*tree) <= kLimits.values, "the number of values is within its limit");
  check(depth_of(*tree) <= kLimits.depth, "the depth is within its limit");
  const Result<Json> back = parse_json(tree->dump(), file, {INT64_MAX, INT64_MAX, kLimits.depth});
  check(back.ok() && *back == *tree, "what is written reads back as the same tree");
  return true;
}

bool check_spec(std::string_view text) {
  const Result<Spec> spec = parse_spec(text, "config.json");
  if (!spec.ok()) {
    check_refusal(spec.status(), "config.json");
    return false;
  }
  check_sizes(*spec);
  check_values(*spec);
  check_derived(*spec);
  check_round_trip(*spec);
  return true;
}

bool check_safetensors(std::string_view bytes) {
  const int memory = ::memfd_create("safetensors", MFD_CLOEXEC);  // a regular file without a disk
  check(memory >= 0, "memfd_create");
  check(::write(memory, bytes.data(), bytes.size()) == std::ssize(bytes), "write");
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  const Result<WeightFile> file = WeightFile::open(path);
  ::close(memory);
  if (!file.ok()) {
    check_refusal(file.status(), path);
    return false;
  }
  uint64_t header_bytes = 0;
  std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&header_bytes));
  check_header(file->tensors(), std::ssize(bytes) - 8 - static_cast<int64_t>(header_bytes));
  check_reads(*file);
  return true;
}

bool check_tokenizer(std::string_view text) {
  static const std::string kVocabulary = byte_vocabulary();
  std::string json(text);
  if (const size_t at = json.find("\"@\""); at != std::string::npos) {
    json.replace(at, 3, kVocabulary);
  }
  const auto tokenizer = Tokenizer::from_json(json, "tokenizer.json");
  if (!tokenizer.ok()) {
    check_refusal(tokenizer.status(), "tokenizer.json");
    return false;
  }
  check((*tokenizer)->size() >= 256 && (*tokenizer)->size() <= kMaxVocabulary, "size");
  check_encodings(**tokenizer, text);
  return true;
}

bool check_vocabulary(std::string_view text) {
  static const std::string kLines = byte_lines();
  std::string lines(text);
  if (const size_t at = lines.find("@\n"); at != std::string::npos) lines.replace(at, 2, kLines);
  const auto tokenizer = Tokenizer::from_rwkv(lines, "vocabulary.txt");
  if (!tokenizer.ok()) {
    check_refusal(tokenizer.status(), "vocabulary.txt");
    return false;
  }
  check((*tokenizer)->size() > 256 && (*tokenizer)->size() <= kMaxVocabulary, "size");
  check_encodings(**tokenizer, text);
  return true;
}

bool check_keys(std::string_view text) {
  const Result<std::vector<KeyEntry>> entries = parse_keys(text, "keys");
  if (!entries.ok()) {
    check_refusal(entries.status(), "keys");
    return false;
  }
  check(std::ssize(*entries) <= kMaxKeys, "keys");
  const auto is_quota = [](const std::optional<int64_t>& quota) {
    return !quota || (*quota >= 1 && *quota <= kMaxQuota);
  };
  std::set<std::string> ids;
  for (const KeyEntry& entry : *entries) {
    check(!entry.name.empty() && std::ssize(entry.name) <= kMaxNameLength, "name");
    check(ids.insert(key_id(entry)).second, "each key once");
    check(is_quota(entry.calls) && is_quota(entry.sessions) && is_quota(entry.values_per_second),
          "quotas");
  }
  const Result<std::vector<KeyEntry>> again = parse_keys(keys_text(*entries), "again");
  check(again.ok() && *again == *entries, "what keys_text() writes reads back the same");
  return true;
}

std::vector<std::string> json_seeds() {
  std::vector<std::string> seeds = spec_seeds();
  seeds.push_back(R"({"a": [1, -2, 0.5e-3, true, null], "b": {"a": "\u00e9\ud83d\ude00\n"}})");
  seeds.push_back("[[[[[[]]]]]]");
  seeds.push_back(" 18446744073709551615 ");
  return seeds;
}

std::vector<std::string> key_seeds() {
  const std::string digits(63, '0');
  return {"", R"({"name": "ada", "sha256": ")" + digits + "1\"}\n",
          R"({"name": "ada", "sha256": ")" + digits +
              "1\", \"calls\": 4, \"sessions\": 8, \"values_per_second\": 10000}\n\n" +
              R"({"name": "bob", "sha256": "a)" + digits +
              "\", \"models\": [\"one\", \"two\"], \"admin\": true}"};
}

std::vector<std::string> spec_seeds() {
  Spec plain = small_symbol_spec();
  sizes_of(plain).position = PositionKind::kNone;
  plain.symbols.clear();
  sizes_of(plain).final_norm = false;
  Spec endless = small_image_spec();
  endless.image.reset();
  sizes_of(endless).position = PositionKind::kSinusoidal;
  endless.positions = 0;
  std::vector<std::string> seeds;
  std::vector<Spec> specs = small_family_specs();
  specs.insert(specs.end(),
               {small_image_spec(), small_text_spec(), small_gated_spec(), plain, endless});
  for (const Spec& spec : specs) {
    seeds.push_back(Json::parse(spec_to_json(spec)).dump());  // without spaces
  }
  return seeds;
}

std::vector<std::string> safetensors_seeds() {
  const std::string zeros(64, '\0');
  return {
      safetensors_file("{}", ""),
      safetensors_file({{"w", {"F32", {2, 3}, zeros.substr(0, 24)}}}),
      safetensors_file({{"a", {"F16", {4}, zeros.substr(0, 8)}},
                        {"b", {"BF16", {1, 2, 2}, zeros.substr(0, 8)}},
                        {"c", {"F32", {}, zeros.substr(0, 4)}},
                        {"d", {"F32", {0, 5}, ""}}}),
      safetensors_file(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],)"
                       R"("data_offsets":[0,4]}}  )",
                       zeros.substr(0, 4)),
  };
}

std::vector<std::string> tokenizer_seeds() {
  return {
      R"json({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":259,
"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,
"special":true}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
"post_processor":null,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":"@",
"merges":["a b","ab c","\u0120 a"]}})json",
      R"json({"added_tokens":[{"id":300,"content":"\r","normalized":true,"rstrip":true}],"pre_tokenizer":{
"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{
"Regex":"(?i:'s)|[^\\s\\p{L}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)"},"behavior":"Isolated",
"invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},
"model":{"vocab":"@","merges":[["a","b"]],"ignore_merges":true}})json",
      R"json({"added_tokens":[{"id":300,"content":"e\u0301","normalized":true,"lstrip":true}],
"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[
{"type":"Punctuation","behavior":"Contiguous"},{"type":"ByteLevel"},
{"type":"Digits","individual_digits":false}]},"model":{"vocab":"@","merges":["a b"]}})json",
      R"json({"added_tokens":[{"id":259,"content":"<|end|>"}],"normalizer":{"type":"Sequence",
"normalizers":[{"type":"Prepend","prepend":"\u2581"},{"type":"Replace","pattern":{"String":" "},
"content":"\u2581"}]},"pre_tokenizer":null,"post_processor":{"type":"TemplateProcessing","single":[
{"SpecialToken":{"id":"s","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{
"s":{"id":"s","ids":[259]}}},"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{
"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip",
"content":" ","start":1,"stop":0}]},"model":{"byte_fallback":true,"vocab":"@",
"merges":["\u2581 a"]}})json",
      R"json({"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first",
"split":true},"decoder":{"type":"Metaspace","replacement":"\u2581"},"model":{"byte_fallback":true,
"vocab":"@","merges":[]}})json",
  };
}

std::vector<std::string> vocabulary_seeds() {
  return {"@\n261 '\\n\\n' 2\n300 \" it's\" 5\n301 '\\u5ddd' 3\n302 b'\\xe5\\xb7' 2\n",
          "@\n257 'ab' 2\n258 'abc' 3\n70000 '\xc3\xa9' 2"};
}

std::span<const std::string_view> spec_words() {
  static constexpr std::string_view kWords[] = {"\"runnel_bundle\"",
                                                "\"model\"",
                                                "\"image\"",
                                                "\"symbols\"",
                                                "\"text\"",
                                                "\"bytes\"",
                                                "\"tokenizer\"",
                                                "\"begin\"",
                                                "\"histogram\"",
                                                "\"length\"",
                                                "\"components\"",
                                                "\"table\"",
                                                "\"sinusoidal\"",
                                                "\"none\"",
                                                "\"add\"",
                                                "\"concat\"",
                                                "\"categorical\"",
                                                "\"mixture_of_logistics\"",
                                                "\"gelu\"",
                                                "\"family\"",
                                                "\"rwkv7\"",
                                                "\"mamba2\"",
                                                "\"gated_linear\"",
                                                "\"rwkv6\"",
                                                "\"mamba1\"",
                                                "\"hybrid\"",
                                                "\"softmax\"",
                                                "\"qwen3_5\"",
                                                "\"lfm2\"",
                                                "\"nemotron_h\"",
                                                "\"rabf\"",
                                                "null",
                                                "true",
                                                "0",
                                                "1",
                                                "-1",
                                                "255",
                                                "256",
                                                "16384",
                                                "1048576",
                                                "2147483648",
                                                "9223372036854775807",
                                                "18446744073709551615",
                                                "1e-45",
                                                "1e39",
                                                "1e308",
                                                "0.5",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                ":",
                                                "\\u0000",
                                                "\\ud800",
                                                "\xff",
                                                "\xef\xbb\xbf"};
  return kWords;
}

std::span<const std::string_view> safetensors_words() {
  static constexpr std::string_view kWords[] = {"\"dtype\"",
                                                "\"shape\"",
                                                "\"data_offsets\"",
                                                "\"__metadata__\"",
                                                "\"F32\"",
                                                "\"F16\"",
                                                "\"BF16\"",
                                                "\"F64\"",
                                                "[]",
                                                "[0,0]",
                                                "[0,4]",
                                                "[4,8]",
                                                "0",
                                                "1",
                                                "2",
                                                "-1",
                                                "4",
                                                "8",
                                                "24",
                                                "4294967296",
                                                "4611686018427387904",
                                                "9223372036854775807",
                                                "18446744073709551615",
                                                "1.0",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                ":",
                                                "\\u0000",
                                                "\xff",
                                                " "};
  return kWords;
}

std::span<const std::string_view> key_words() {
  static constexpr std::string_view kWords[] = {"\"name\"",
                                                "\"sha256\"",
                                                "\"calls\"",
                                                "\"sessions\"",
                                                "\"values_per_second\"",
                                                "\"models\"",
                                                "\"admin\"",
                                                "true",
                                                "false",
                                                "null",
                                                "1",
                                                "-1",
                                                "100000001",
                                                "\"a\"",
                                                "[]",
                                                "\n",
                                                "{",
                                                "}",
                                                ",",
                                                ":"};
  return kWords;
}

std::span<const std::string_view> tokenizer_words() {
  static constexpr std::string_view kWords[] = {"null",
                                                "true",
                                                "false",
                                                "0",
                                                "97",
                                                "256",
                                                "259",
                                                "1048575",
                                                "1048576",
                                                "-1",
                                                "\"@\"",
                                                "\"ByteLevel\"",
                                                "\"Sequence\"",
                                                "\"Split\"",
                                                "\"NFC\"",
                                                "\"Prepend\"",
                                                "\"Replace\"",
                                                "\"Metaspace\"",
                                                "\"Punctuation\"",
                                                "\"Digits\"",
                                                "\"ByteFallback\"",
                                                "\"TemplateProcessing\"",
                                                "\"first\"",
                                                "\"never\"",
                                                "\\u2581",
                                                "\"a b\"",
                                                "[\"a\",\"b\"]",
                                                "[]",
                                                "{}",
                                                "\\\\s",
                                                "\\\\S",
                                                "\\\\p{L}",
                                                "\\\\p{Lu}",
                                                "\\\\w",
                                                "\\\\1",
                                                "(?:",
                                                "(?=",
                                                "(?<!",
                                                "(?i:",
                                                "(",
                                                ")",
                                                "[^",
                                                "[",
                                                "]",
                                                "{1,3}",
                                                "*",
                                                "+",
                                                "?",
                                                "|",
                                                "^",
                                                "$",
                                                ".",
                                                "\\u0000",
                                                "\\ud800",
                                                "\xff",
                                                "\xc3\xa9",
                                                " "};
  return kWords;
}

std::span<const std::string_view> vocabulary_words() {
  static constexpr std::string_view kWords[] = {
      "\n",      " ",    "'",      "\"",       "b'",   "\\x",      "\\xff", "\\u5ddd",
      "\\ud800", "\\n",  "\\'",    "\\\\",     " 1\n", " 2\n",     "0 ",    "1 ",
      "256 ",    "257 ", "70000 ", "1048576 ", "-1",   "\xc3\xa9", "\xff",  "@\n"};
  return kWords;
}

}  // namespace runnel
