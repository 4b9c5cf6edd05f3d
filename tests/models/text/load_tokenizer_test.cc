#include "models/text/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/models/bundle/gguf_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LoadTokenizer, ReadsAnyOfTheFiles) {
  const TempDir directory;
  const std::string path = directory.path();
  const Status none = load_tokenizer(path).status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("/tokenizer.json: cannot be opened"));
  EXPECT_THAT(none.message(), HasSubstr(", nor is there a rwkv_vocab_v20230424.txt"));
  const std::string golden = "tests/golden/tokenizers/";
  std::filesystem::copy(golden + "rwkv/rwkv_vocab_v20230424.txt", path);
  const auto rwkv = load_tokenizer(path);
  ASSERT_TRUE(rwkv.ok()) << rwkv.status().message();
  EXPECT_EQ((*rwkv)->end(), std::vector<int32_t>{0});
  std::filesystem::copy(golden + "llama/tokenizer.json", path);
  const auto llama = load_tokenizer(path);
  ASSERT_TRUE(llama.ok()) << llama.status().message();
  EXPECT_EQ((*llama)->end(), std::vector<int32_t>{2});
}

TEST(LoadTokenizer, ReadsTheKeysOfAGgufFile) {
  const TempDir directory;
  const std::string path = directory.path() + "/m.gguf";
  write_file(path, GgufWriter().file());
  EXPECT_EQ(load_tokenizer(path).status().code(), Code::kNotFound);
  write_file(path, GgufWriter().text("tokenizer.ggml.model", "llama").file());
  EXPECT_THAT(load_tokenizer(path).status().message(),
              StartsWith(path + ": tokenizer.ggml.model: expected 'rwkv' or 'gpt2'"));
}

TEST(LoadTokenizer, NamesTheFileThatIsWrong) {
  const TempDir directory;
  const std::string rwkv = directory.path() + "/rwkv_vocab_v20230424.txt";
  write_file(rwkv, "1 a 1\n");
  EXPECT_THAT(load_tokenizer(directory.path()).status().message(), StartsWith(rwkv + ": line 1: "));
  const std::string json = directory.path() + "/tokenizer.json";
  write_file(json, "{}");
  EXPECT_THAT(load_tokenizer(directory.path()).status().message(), StartsWith(json + ": model: "));
  std::filesystem::remove(json);
  std::filesystem::create_directory(json);  // it must not fall back to the other file
  EXPECT_THAT(load_tokenizer(directory.path()).status().message(),
              HasSubstr("/tokenizer.json: not a regular file"));
}

}  // namespace
}  // namespace runnel
