// Tests the header of GGUF files. tests/golden/gguf_test.cc tests whole models.
#include "models/bundle/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "models/bundle/bundle.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/bundle/gguf_writer.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr uint32_t kF32 = 0, kQ4_0 = 2, kQ8_0 = 8;

Result<GgufHeader> parse(const std::string& file) {
  return parse_gguf_header(std::as_bytes(std::span(file)), "m.gguf");
}

std::string fault_of(const std::string& file) {
  const Result<GgufHeader> header = parse(file);
  EXPECT_FALSE(header.ok());
  return header.ok() ? "" : header.status().message();
}

std::string with_tensor(GgufTensor tensor) { return GgufWriter().tensor(std::move(tensor)).file(); }

std::string zeros(size_t bytes) { return std::string(bytes, '\0'); }

TEST(Gguf, ReadsKeysAndTensors) {
  const std::string file = GgufWriter()
                               .text("general.architecture", "rwkv7")
                               .number("a.count", 24U)
                               .number("a.eps", 0.5F)
                               .boolean("a.flag", true)
                               .pair("a.long", 11, gguf_bytes(int64_t{-3}))
                               .pair("a.double", 12, gguf_bytes(0.25))
                               .texts("tokens", {"a", "\xff", ""})
                               .numbers("types", {1, -1})
                               .tensor({"w", kF32, {3, 2}, zeros(24)})
                               .tensor({"q", kQ8_0, {64, 1, 2}, zeros(136)})
                               .file();
  for (const uint32_t version : {2U, 3U}) {
    std::string one = file;
    one[4] = static_cast<char>(version);
    const Result<GgufHeader> header = parse(one);
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->metadata["general.architecture"], "rwkv7");
    EXPECT_EQ(header->metadata["a.count"], 24);
    EXPECT_EQ(header->metadata["a.eps"], 0.5);
    EXPECT_EQ(header->metadata["a.flag"], true);
    EXPECT_EQ(header->metadata["a.long"], -3);
    EXPECT_EQ(header->metadata["a.double"], 0.25);
    EXPECT_EQ(header->metadata["tokens"][1].get<std::string>(), "\xff");
    EXPECT_EQ(header->metadata["types"][1], -1);
    const StoredTensor& q = header->tensors.at("q");
    EXPECT_EQ(q.type, StoredType::kQ8_0);
    EXPECT_EQ(q.shape, (std::vector<int64_t>{2, 1, 64}));
    EXPECT_EQ(q.begin, 32);
    EXPECT_EQ(q.end, 32 + 136);
    EXPECT_EQ(header->data_begin % 32, 0);
  }
}

TEST(Gguf, RefusesOtherFiles) {
  EXPECT_THAT(fault_of("GGML" + zeros(20)), HasSubstr("m.gguf: expected a GGUF file"));
  EXPECT_THAT(fault_of(GgufWriter().file(1)), HasSubstr("expected version 2 or 3, found 1"));
  EXPECT_THAT(fault_of(GgufWriter().file(4)), HasSubstr("expected version 2 or 3, found 4"));
  EXPECT_THAT(fault_of(GgufWriter().file(0x03000000)), HasSubstr("found a big-endian one"));
  EXPECT_THAT(fault_of(GgufWriter().pair("split.count", 2, gguf_bytes(uint16_t{3})).file()),
              HasSubstr("'split.count': expected a model in one file, found 3 files; join them"));
  EXPECT_TRUE(parse(GgufWriter().pair("split.count", 2, gguf_bytes(uint16_t{1})).file()).ok());
}

TEST(Gguf, BoundsCountsBeforeItAsksForMemory) {
  const std::string start = "GGUF" + gguf_bytes(uint32_t{3});
  EXPECT_THAT(fault_of(start + gguf_bytes(uint64_t{65537}) + gguf_bytes(uint64_t{0})),
              HasSubstr("a number of tensors of at most 65536, found 65537"));
  EXPECT_THAT(fault_of(start + gguf_bytes(uint64_t{0}) + gguf_bytes(~uint64_t{0})),
              HasSubstr("a number of keys of at most 65536, found 18446744073709551615"));
  EXPECT_THAT(fault_of(GgufWriter().pair("k", 8, gguf_bytes(~uint64_t{0})).file()),
              HasSubstr("the length of a string of at most 1048576"));
  EXPECT_THAT(fault_of(GgufWriter().pair("k", 8, gguf_bytes(uint64_t{1000})).file()),
              HasSubstr("found the end of the file; is it complete?"));
  const auto array = [](uint32_t type, uint64_t count) {
    return GgufWriter().pair("k", 9, gguf_bytes(type) + gguf_bytes(count)).file();
  };
  EXPECT_THAT(fault_of(array(4, uint64_t{1} << 40)), HasSubstr("a number of elements of at most"));
  EXPECT_THAT(fault_of(array(4, 4 << 20)), HasSubstr("the end of the file"));
  const std::string half = gguf_bytes(uint32_t{0}) + gguf_bytes(uint64_t{2 << 20});
  EXPECT_THAT(fault_of(GgufWriter()
                           .pair("a", 9, half + zeros(2 << 20))
                           .pair("b", 9, half + zeros(2 << 20))
                           .texts("c", {""})
                           .file()),
              HasSubstr("key 'c': expected at most 4194304 elements in all arrays of the file"));
  EXPECT_THAT(fault_of(array(9, 1)), HasSubstr("key 'k': expected an array of numbers"));
  EXPECT_THAT(fault_of(array(13, 1)), HasSubstr("found type 13"));
}

TEST(Gguf, BoundsTexts) {
  EXPECT_THAT(fault_of(GgufWriter().number(std::string(65536, 'k'), 1U).file()),
              HasSubstr("the length of a key of at most 65535, found 65536"));
  EXPECT_TRUE(parse(GgufWriter().number(std::string(65535, 'k'), 1U).file()).ok());
  EXPECT_THAT(fault_of(GgufWriter().texts("k", {std::string(65537, 't')}).file()),
              HasSubstr("the length of a string in an array of at most 65536, found 65537"));
  EXPECT_TRUE(parse(GgufWriter().texts("k", {std::string(65536, 't')}).file()).ok());
  GgufWriter large;
  for (int i = 0; i < 64; ++i) large.text("k" + std::to_string(i), std::string(1 << 20, 't'));
  EXPECT_THAT(fault_of(large.file()),
              HasSubstr("expected a header of at most 64 MiB, found one in which the length of a "
                        "string at byte "));
}

TEST(Gguf, RefusesBadKeysAndValues) {
  EXPECT_THAT(fault_of(GgufWriter().number("k", 1U).number("k", 1U).file()),
              HasSubstr("key 'k': expected once, found twice"));
  EXPECT_THAT(fault_of(GgufWriter().number("", 1U).file()), HasSubstr("that is not empty"));
  EXPECT_THAT(fault_of(GgufWriter().number("\xff", 1U).file()), HasSubstr("a key of UTF-8"));
  EXPECT_THAT(fault_of(GgufWriter().text("k", "\xff").file()), HasSubstr("expected UTF-8"));
  EXPECT_THAT(fault_of(GgufWriter().pair("k", 7, "\2").file()), HasSubstr("a bool of 0 or 1"));
  EXPECT_THAT(fault_of(GgufWriter().pair("k", 13, "").file()), HasSubstr("a type from 0 to 12"));
  for (const uint32_t alignment : {0U, 4U, 24U, 131072U}) {
    EXPECT_THAT(fault_of(GgufWriter().number("general.alignment", alignment).file()),
                HasSubstr("'general.alignment': expected a power of two from 8 to 65536"));
  }
}

TEST(Gguf, RefusesBadTensors) {
  EXPECT_THAT(fault_of(with_tensor({"w", 3, {32}, zeros(20)})),
              HasSubstr("tensor 'w': expected a type of F32, F16"));
  EXPECT_THAT(fault_of(with_tensor({"w", 3, {32}, zeros(20)})), HasSubstr("found Q4_1; quantize"));
  EXPECT_THAT(fault_of(with_tensor({"w", 99, {32}, zeros(20)})), HasSubstr("type number 99"));
  EXPECT_THAT(fault_of(with_tensor({"w", kQ4_0, {48}, zeros(64)})),
              HasSubstr("rows of a multiple of 32 elements, a block of Q4_0, found 48"));
  EXPECT_THAT(fault_of(with_tensor({"w", kF32, {}, ""})), HasSubstr("1 to 4 dimensions, found 0"));
  EXPECT_THAT(fault_of(with_tensor({"w", kF32, {1, 1, 1, 1, 1}, zeros(4)})), HasSubstr("found 5"));
  EXPECT_THAT(fault_of(with_tensor({"w", kF32, {4, 0}, ""})), HasSubstr("dimensions from 1"));
  const uint64_t large = uint64_t{1} << 32;
  EXPECT_THAT(fault_of(with_tensor({"w", kF32, {large, large}, ""})), HasSubstr("takes more than"));
  EXPECT_THAT(fault_of(with_tensor({std::string(64, 'w'), kF32, {1}, zeros(4)})),
              HasSubstr("a tensor's name of at most 63, found 64"));
  EXPECT_THAT(fault_of(with_tensor({"", kF32, {1}, zeros(4)})), HasSubstr("not empty"));
  EXPECT_THAT(fault_of(with_tensor({"\xff", kF32, {1}, zeros(4)})),
              HasSubstr("a tensor's name of UTF-8 that is not empty"));
  EXPECT_THAT(fault_of(GgufWriter()
                           .tensor({"w", kF32, {1}, zeros(4)})
                           .tensor({"w", kF32, {1}, zeros(4)})
                           .file()),
              HasSubstr("tensor 'w': expected once, found twice"));
}

TEST(Gguf, TensorsFollowOneAnother) {
  // The first tensor's data are shorter than its shape, so the second tensor overlaps it.
  EXPECT_THAT(fault_of(GgufWriter()
                           .tensor({"a", kF32, {16}, zeros(32)})
                           .tensor({"b", kF32, {1}, zeros(4)})
                           .file()),
              HasSubstr("tensor 'b': expected the offset 64, where the tensors before it end, "
                        "found 32"));
  EXPECT_THAT(fault_of(GgufWriter()
                           .tensor({"a", kF32, {1}, zeros(64)})
                           .tensor({"b", kF32, {1}, zeros(4)})
                           .file()),
              HasSubstr("expected the offset 32"));
  EXPECT_THAT(fault_of(with_tensor({"a", kF32, {16}, zeros(32)})),
              HasSubstr("tensor 'a': expected to end within the file"));
}

TEST(Gguf, EveryPrefixOfAFileIsRefused) {
  const std::string file = GgufWriter()
                               .text("general.architecture", "rwkv7")
                               .texts("tokens", {"a", "b"})
                               .tensor({"w", kF32, {16}, zeros(64)})
                               .file();
  ASSERT_TRUE(parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse(file.substr(0, size)).ok()) << size;
  }
}

// The keys of an RWKV-7 of width 4 with 257 tokens ("<s>" and all single bytes), and its embedding,
// with dimensions in the order of the file.
GgufWriter small_rwkv7(std::vector<uint64_t> embedding) {
  GgufWriter writer;
  writer.text("general.architecture", "rwkv7");
  for (const char* const key :
       {"embedding_length", "feed_forward_length", "wkv.head_size", "attention.decay_lora_rank",
        "attention.iclr_lora_rank", "attention.value_residual_mix_lora_rank",
        "attention.gate_lora_rank"}) {
    writer.number("rwkv7." + std::string(key), 4U);
  }
  std::vector<std::string> tokens = {"<s>"};
  std::vector<int32_t> types = {3};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    tokens.push_back(std::string("\\x") + kDigits[byte / 16] + kDigits[byte % 16]);
    types.push_back(1);
  }
  const uint64_t size = embedding[0] * embedding[1];
  writer.number("rwkv7.block_count", 1U)
      .text("tokenizer.ggml.model", "rwkv")
      .texts("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.token_type", types)
      .tensor({"token_embd.weight", kF32, std::move(embedding), zeros(4 * size)});
  return writer;
}

TEST(Gguf, TokensAreTheRowsOfTheTable) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  write_file(path, small_rwkv7({4, 258}).file());
  EXPECT_THAT(load_bundle(path).status().message(),
              HasSubstr("m.gguf: tokenizer.ggml.tokens: expected 258 tokens, one for each row of "
                        "'token_embd.weight', found 257"));
}

// A whole model, and the same model with a key that says that the feed-forward is wider by one.
TEST(Gguf, ShapesFollowFromTheKeys) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  std::string file = *read_file("tests/golden/gguf/rwkv7.gguf", 1 << 20);
  write_file(path, file);
  ASSERT_TRUE(load_bundle(path).ok());
  const std::string key = "rwkv7.feed_forward_length";
  file[file.find(key) + key.size() + 4] += 1;  // after the type of the value
  write_file(path, file);
  EXPECT_THAT(load_bundle(path).status().message(),
              HasSubstr("m.gguf: tensor 'blk.0.channel_mix_key.weight': expected shape [81, "));
}

// An RWKV-7 of width 32 and rank 1 without a vocabulary. `w2`, with dimensions in the order of the
// file, takes the place of its tensor of the decay, whose rows have one number.
std::string rwkv7_of_rank_1(const GgufTensor& w2) {
  GgufWriter writer;
  writer.text("general.architecture", "rwkv7").number("rwkv7.block_count", 1U);
  for (const char* const key : {"embedding_length", "feed_forward_length", "wkv.head_size"}) {
    writer.number("rwkv7." + std::string(key), 32U);
  }
  for (const char* const name : {"decay", "iclr", "value_residual_mix", "gate"}) {
    writer.number("rwkv7.attention." + std::string(name) + "_lora_rank", 1U);
  }
  Spec spec;
  spec.vocabulary = 5;
  spec.head = {HeadKind::kCategorical, 5, 0};
  spec.model = Rwkv7Spec{.names = Rwkv7Names::kGguf,
                         .layers = 1,
                         .width = 32,
                         .heads = 1,
                         .value_width = 32,
                         .ffn = 32,
                         .ranks = {.decay = 1, .rate = 1, .value = 1, .gate = 1},
                         .table_rows = 5};
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (!tensor.read) continue;
    const std::vector<uint64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    writer.tensor(tensor.name == w2.name
                      ? w2
                      : GgufTensor{tensor.name, kF32, shape, zeros(4 * tensor.elements())});
  }
  return writer.file();
}

TEST(Gguf, ARowInBlocksIsNotReadAsRowsOfOneNumber) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  const std::string name = "blk.0.time_mix_w2.weight";
  for (const std::vector<uint64_t>& shape : std::vector<std::vector<uint64_t>>{{1, 32}, {32}}) {
    write_file(path, rwkv7_of_rank_1({name, kF32, shape, zeros(128)}));
    const Result<Bundle> bundle = load_bundle(path);
    EXPECT_TRUE(bundle.ok()) << bundle.status().message();
  }
  write_file(path, rwkv7_of_rank_1({name, kQ8_0, {32}, zeros(34)}));
  EXPECT_THAT(load_bundle(path).status().message(),
              HasSubstr("tensor '" + name + "': expected shape [32, 1], found [32]"));
}

TEST(Gguf, TheFamilyMustBeKnown) {
  const TempDir dir;
  const std::string path = dir.path() + "/m.gguf";
  const auto fault = [&](const GgufWriter& writer) {
    write_file(path, writer.file());
    return load_bundle(path).status().message();
  };
  EXPECT_THAT(
      fault(GgufWriter().text("general.architecture", "llama")),
      HasSubstr(
          "m.gguf: general.architecture: expected 'rwkv7', 'mamba2', 'qwen35', "
          "'qwen35moe', 'qwen3next', 'lfm2', 'lfm2moe', 'granitehybrid', "
          "'falcon-h1', 'nemotron_h' or 'nemotron_h_moe', the architectures that are read from "
          "GGUF files, found 'llama'"));
  EXPECT_THAT(fault(GgufWriter().text("general.architecture", "qwen3moe")),
              HasSubstr("found 'qwen3moe', whose experts are not implemented"));
  EXPECT_THAT(fault(GgufWriter()), HasSubstr("found no such key"));
  EXPECT_THAT(fault(GgufWriter().text("general.architecture", "rwkv7")),
              HasSubstr("rwkv7.block_count: expected an integer from 1 to 256, found no such key"));
  EXPECT_EQ(load_bundle(dir.path() + "/none.gguf").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace runnel
