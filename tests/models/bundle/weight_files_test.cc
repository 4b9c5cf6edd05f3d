#include "models/bundle/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <stdexcept>
#include <string>

#include "base/file.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using testing::HasSubstr;

constexpr const char* kIndex = "/model.safetensors.index.json";

RawTensor ones(int64_t count) {
  return {"F32", {count}, raw_values(std::vector<float>(count, 1.0F), StoredType::kF32)};
}

class WeightFilesTest : public testing::Test {
 protected:
  WeightFilesTest() {
    write_file(path("/a.safetensors"), safetensors_file({{"x", ones(2)}, {"y", ones(3)}}));
    write_file(path("/b.safetensors"), safetensors_file({{"z", ones(4)}}));
    write_index(R"({"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"})");
  }

  std::string path(const std::string& name) const { return directory_.path() + name; }
  void write_index(const std::string& map) const {
    write_file(path(kIndex), R"({"metadata": {"total_size": 36}, "weight_map": )" + map + "}");
  }
  // A file that takes many seconds to hash, but no space on disk.
  void write_large_file() const {
    write_file(path("/model.safetensors"),
               safetensors_file(R"({"w": {"dtype": "F32", "shape": [8589934592], )"
                                R"("data_offsets": [0, 34359738368]}})",
                                ""));
    const std::string file = path("/model.safetensors");
    std::filesystem::resize_file(file, std::filesystem::file_size(file) + 34359738368);
  }
  static std::string sha256_of_text(const std::string& text) {
    return hex(as_text(sha256_of(std::as_bytes(std::span(text)))));
  }
  std::string sha256_of_file(const std::string& name) const {
    return sha256_of_text(*read_file(path(name), 1 << 30));
  }
  std::string refusal() const {
    const auto files = WeightFiles::open(directory_.path());
    EXPECT_FALSE(files.ok());
    EXPECT_EQ(files.status().message().find('\n'), std::string::npos);
    return files.status().message();
  }

  const TempDir directory_;
};

TEST_F(WeightFilesTest, SeveralFilesAreOne) {
  int64_t done = 0;
  int64_t all = 0;
  const auto opened = WeightFiles::open(directory_.path(), [&](int64_t now, int64_t end) {
    EXPECT_GE(now, done);
    EXPECT_LE(now, end);
    done = now;
    all = end;
  });
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const WeightFiles& files = **opened;
  EXPECT_EQ(files.tensors().size(), 3U);
  EXPECT_EQ(files.path(), path(kIndex));
  for (const auto& [name, tensor] : files.tensors()) {
    const auto found = files.find(name, tensor.shape);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(widened(*found), std::vector<float>(tensor.shape[0], 1.0F));
    EXPECT_TRUE(files.check(name).ok());
    files.release(found->bytes);
  }
  EXPECT_FALSE(files.find("x", std::vector<int64_t>{3}).ok());
  EXPECT_FALSE(files.find("none", std::vector<int64_t>{3}).ok());
  // As `sha256sum a.safetensors b.safetensors | sha256sum` prints it.
  const std::string lines = sha256_of_file("/a.safetensors") + "  a.safetensors\n" +
                            sha256_of_file("/b.safetensors") + "  b.safetensors\n";
  EXPECT_EQ(*files.digest(), sha256_of_text(lines));
  EXPECT_EQ(done, all) << "hashed and packed";
}

TEST_F(WeightFilesTest, ANumberThatIsNotFiniteIsRefusedWheneverItsTensorIsChecked) {
  RawTensor z = ones(4);
  z.data.replace(8, 4, std::string("\0\0\xc0\x7f", 4));
  write_file(path("/b.safetensors"), safetensors_file({{"z", z}}));
  const auto files = WeightFiles::open(directory_.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_TRUE((*files)->check("x").ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*files)->check("z").message(),
              path("/b.safetensors: tensor 'z': element [2] is NaN; expected a finite number"));
  }
}

TEST_F(WeightFilesTest, OneFileIsTakenBeforeAnIndex) {
  write_file(path("/model.safetensors"), safetensors_file({{"w", ones(1)}}));
  const auto files = WeightFiles::open(directory_.path());
  ASSERT_TRUE(files.ok());
  EXPECT_EQ((*files)->tensors().size(), 1U);
  EXPECT_EQ(*(*files)->digest(), sha256_of_file("/model.safetensors"));
}

TEST_F(WeightFilesTest, TheDigestOfOneFileIsItsSha256) {
  write_file(path("/model.safetensors"), safetensors_file("{}", ""));
  // printf '\2\0\0\0\0\0\0\0{}' | sha256sum
  EXPECT_EQ(*(*WeightFiles::open(directory_.path()))->digest(),
            "411a485216e432ece6b9af94fa32154cf79a2a56d4f81266baa50063f45092bd");
  write_file(path("/model.safetensors"), safetensors_file({{"w", ones(1'000'000)}}));
  const auto files = WeightFiles::open(directory_.path());
  const std::string digest = sha256_of_file("/model.safetensors");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*(*files)->digest(), digest);
}

TEST_F(WeightFilesTest, AGgufFileIsOneFile) {
  const std::string golden = "tests/golden/gguf/rwkv7.gguf";
  const auto files = WeightFiles::open(golden);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ((*files)->metadata()["general.architecture"], "rwkv7");
  EXPECT_EQ(*(*files)->digest(), sha256_of_text(*read_file(golden, 1 << 30)));
}

TEST_F(WeightFilesTest, ClosingTheFilesDoesNotWaitForTheDigest) {
  write_large_file();
  const std::clock_t begun = std::clock();  // the processor time of all threads
  ASSERT_TRUE(WeightFiles::open(directory_.path()).ok());
  EXPECT_LT(std::clock() - begun, 5 * CLOCKS_PER_SEC) << "the digest of the file takes longer";
}

TEST_F(WeightFilesTest, AnExceptionOfTheProgressCallbackEndsTheWait) {
  write_large_file();
  const auto files = WeightFiles::open(
      directory_.path(), [](int64_t, int64_t) { throw std::runtime_error("stopped"); });
  ASSERT_TRUE(files.ok());
  EXPECT_THROW((void)(*files)->digest(), std::runtime_error);
}

TEST_F(WeightFilesTest, AFileThatIsCutWhileItIsHashedHasNoDigest) {
  write_large_file();
  const auto files = WeightFiles::open(directory_.path());
  ASSERT_TRUE(files.ok());
  std::filesystem::resize_file(path("/model.safetensors"), 100);
  EXPECT_THAT((*files)->digest().status().message(),
              HasSubstr("model.safetensors: was cut short while it was read"));
}

// Hugging Face's cache has links to ../../blobs.
TEST_F(WeightFilesTest, LinksAreFollowed) {
  const std::string blob = path("/blob");
  std::filesystem::rename(path("/b.safetensors"), blob);
  std::filesystem::create_symlink("blob", path("/b.safetensors"));
  EXPECT_TRUE(WeightFiles::open(directory_.path()).ok());
}

TEST_F(WeightFilesTest, AnIndexAndItsFilesAgreeOnEveryTensor) {
  write_index(R"({"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("tensor 'x': expected in 'b.safetensors', found in '"));
  write_index(R"({"x": "a.safetensors", "w": "a.safetensors", "z": "b.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("tensor 'w': expected in 'a.safetensors', found in no file"));
  write_index(R"({"x": "a.safetensors", "z": "b.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("a.safetensors: tensor 'y': expected a line of "));
  write_index(R"({"x": "a.safetensors", "y": "a.safetensors", "z": "c.safetensors"})");
  EXPECT_THAT(refusal(), HasSubstr("c.safetensors: cannot be opened: No such file or directory; "));
  write_file(path("/c.safetensors"), safetensors_file({{"z", ones(4)}, {"x", ones(2)}}));
  EXPECT_THAT(refusal(), HasSubstr("tensor 'x': expected in one file, found in '"));
}

TEST_F(WeightFilesTest, ACutFileIsRefused) {
  std::filesystem::resize_file(path("/b.safetensors"),
                               std::filesystem::file_size(path("/b.safetensors")) - 1);
  EXPECT_THAT(refusal(), HasSubstr("b.safetensors: tensor 'z': data_offsets"));
  std::filesystem::resize_file(path("/b.safetensors"), 12);
  EXPECT_THAT(refusal(), HasSubstr("b.safetensors: the header's length"));
}

TEST_F(WeightFilesTest, MissingWeightsNameTheConverter) {
  const TempDir empty;
  const auto files = WeightFiles::open(empty.path());
  EXPECT_EQ(files.status().code(), Code::kNotFound);
  EXPECT_THAT(files.status().message(), HasSubstr("runnel-convert"));
}

TEST(WeightIndex, FaultsAreNamed) {
  for (const auto& [text, message] :
       {std::pair("[]", "i: expected an object, found an array of 0"),
        std::pair("{}", "i: weight_map: expected an object, found no such key"),
        std::pair(R"({"weight_map": []})", "with the file's name of each tensor, found an array"),
        std::pair(R"({"weight_map": {}})", "with the file's name of each tensor, found none"),
        std::pair(R"({"weight_map": {"x": 1}})", "tensor 'x': expected the name of a .safetensors"),
        std::pair(R"({"weight_map": {"x": "../a.safetensors"}})", "found '../a.safetensors'"),
        std::pair(R"({"weight_map": {"x": "/etc/a.safetensors"}})", "without '/' and '..'"),
        std::pair(R"({"weight_map": {"x": "a..safetensors"}})", "found 'a..safetensors'"),
        std::pair(R"({"weight_map": {"x": "model.bin"}})", "found 'model.bin'"),
        std::pair(R"({"weight_map": {"x": ""}})", "found ''"),
        std::pair(R"({"weight_map": {"x": "a.safetensors", "x": "a.safetensors"}})", "twice")}) {
    const auto index = parse_weight_index(text, "i");
    EXPECT_EQ(index.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(index.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace runnel
