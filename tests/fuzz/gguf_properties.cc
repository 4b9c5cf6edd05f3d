#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/limits.h"
#include "models/bundle/gguf.h"
#include "models/bundle/mapped_file.h"
#include "models/bundle/published.h"
#include "models/text/gguf_vocabulary.h"
#include "tests/fuzz/properties.h"
#include "tests/models/bundle/gguf_writer.h"

namespace runnel {
namespace {

const std::string kFile = "m.gguf";

void check_tensors(const GgufHeader& header, std::span<const std::byte> file) {
  const auto data_bytes = std::ssize(file) - header.data_begin;
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const auto& [name, tensor] : header.tensors) {
    check(tensor.begin >= 0 && tensor.begin < tensor.end, "a tensor has bytes");
    check(tensor.end <= data_bytes, "a tensor lies in the file");
    check(bytes_of(tensor.type, tensor.elements()) == tensor.end - tensor.begin, "its size");
    places.emplace_back(tensor.begin, tensor.end);
    const auto data = file.subspan(static_cast<size_t>(header.data_begin));
    const Result<Tensor> found = find_tensor(header.tensors, data, name, tensor.shape, kFile);
    check(found.ok(), "a tensor is found by its name and shape");
    if (const Status s = check_finite(*found, name, kFile); !s.ok()) {
      check_refusal(s, kFile);
      continue;
    }
    check(std::ranges::all_of(widened(*found), [](float v) { return std::isfinite(v); }), "finite");
  }
  std::ranges::sort(places);
  for (size_t i = 1; i < places.size(); ++i) {
    check(places[i - 1].second <= places[i].first, "tensors do not overlap");
  }
}

void check_vocabulary_keys(const Json& metadata) {
  const auto vocabulary = read_gguf_vocabulary(metadata, kFile);
  if (!vocabulary.ok()) return check_refusal(vocabulary.status(), kFile);
  if (vocabulary->tokenizer == nullptr) return;
  check(vocabulary->tokenizer->size() <= vocabulary->tokens, "values are tokens");
  check(vocabulary->tokens <= kMaxVocabulary, "tokens are within their limit");
}

// Checks the keys of a family, whatever tensors the file has.
void check_family_keys(const GgufHeader& header) {
  Faults faults(kFile);
  const std::string file = kFile;
  const PublishedModel model{{faults, &header.metadata}, header.tensors, file};
  const std::string architecture = model.config.text_or("general.architecture", "");
  for (const Family& family : families()) {
    const auto all = family.architectures;
    if (std::ranges::find(all, architecture) == all.end()) continue;
    Spec spec;
    family.read_gguf(model, spec);
    if (faults.ok()) check(!family.tensors(spec).empty(), "a model has tensors");
  }
  if (!faults.ok()) check_refusal(faults.status(), kFile);
}

std::string zeros(size_t count) { return std::string(count, '\0'); }

}  // namespace

bool check_gguf(std::string_view text) {
  const auto file = std::as_bytes(std::span(text));
  const Result<GgufHeader> header = parse_gguf_header(file, kFile);
  if (!header.ok()) {
    check_refusal(header.status(), kFile);
    return false;
  }
  check(std::ssize(header->metadata) <= gguf_bounds::kPairs, "keys");
  check_tensors(*header, file);
  check_vocabulary_keys(header->metadata);
  check_family_keys(*header);
  return true;
}

std::vector<std::string> gguf_seeds() {
  return {
      GgufWriter().file(),
      GgufWriter().text("general.architecture", "rwkv7").number("rwkv7.block_count", 2U).file(2),
      GgufWriter()
          .tensor({"a", 0, {3, 2}, zeros(24)})
          .tensor({"b", 8, {32, 2}, zeros(68)})
          .tensor({"c", 30, {5}, zeros(10)})
          .file(),
      GgufWriter()
          .tensor({"a", 2, {32}, zeros(18)})
          .tensor({"b", 6, {32}, zeros(22)})
          .tensor({"c", 12, {256}, zeros(144)})
          .tensor({"d", 13, {256}, zeros(176)})
          .tensor({"e", 14, {256}, zeros(210)})
          .tensor({"f", 20, {32}, zeros(18)})
          .tensor({"g", 39, {32}, zeros(17)})
          .file(),
      GgufWriter()
          .text("general.architecture", "lfm2")
          .number("lfm2.block_count", 2U)
          .number("lfm2.embedding_length", 4U)
          .number("lfm2.feed_forward_length", 6U)
          .number("lfm2.context_length", 64U)
          .number("lfm2.attention.head_count", 2U)
          .numbers("lfm2.attention.head_count_kv", {0, 1})
          .number("lfm2.attention.layer_norm_rms_epsilon", 1e-5F)
          .number("lfm2.shortconv.l_cache", 3U)
          .tensor({"token_embd.weight", 0, {4, 2}, zeros(32)})
          .file(),
      GgufWriter()
          .text("tokenizer.ggml.model", "gpt2")
          .text("tokenizer.ggml.pre", "mpt")
          .texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>"})
          .texts("tokenizer.ggml.merges", {"a b"})
          .numbers("tokenizer.ggml.token_type", {1, 1, 1, 3})
          .boolean("tokenizer.ggml.add_bos_token", true)
          .number("tokenizer.ggml.bos_token_id", 3U)
          .file(),
      GgufWriter()
          .text("tokenizer.ggml.model", "rwkv")
          .texts("tokenizer.ggml.tokens", {"<s>", "\\x00", "a\\n", "'"})
          .numbers("tokenizer.ggml.token_type", {3, 1, 1, 1})
          .file(),
  };
}

std::span<const std::string_view> gguf_words() {
  using namespace std::string_view_literals;
  static constexpr std::string_view kWords[] = {
      "GGUF"sv,
      "\x02\0\0\0"sv,
      "\x01\0\0\0\0\0\0\0"sv,
      "\x20\0\0\0\0\0\0\0"sv,
      "\xff\xff\xff\xff\xff\xff\xff\x7f"sv,
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv,
      "\x08\0\0\0"sv,
      "\x09\0\0\0"sv,
      "\x0c\0\0\0"sv,
      "general.alignment"sv,
      "split.count"sv,
      "tokenizer.ggml.tokens"sv,
  };
  return kWords;
}

}  // namespace runnel
