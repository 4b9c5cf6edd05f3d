#include "cli/idx_file.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class IdxFileTest : public testing::Test {
 protected:
  std::string open_error(const std::vector<uint8_t>& bytes) {
    const auto idx = IdxFile::open(folder_.write("a", bytes));
    return idx.ok() ? "" : idx.status().message();
  }
  // The error of the first item that cannot be read, or "" if all can.
  static std::string read_error(const std::string& path) {
    auto idx = IdxFile::open(path);
    if (!idx.ok()) return idx.status().message();
    while (true) {
      const auto item = idx->next();
      if (!item.ok()) return item.status().message();
      if (!item->has_value()) return "";
    }
  }
  TestFolder folder_;
};

void write_gz(const std::string& path, std::span<const uint8_t> bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), bytes.size());
  gzclose(file);
}

TEST_F(IdxFileTest, ReadsPlainAndGzip) {
  const auto content = random_bytes(3 * 4 * 5, 1);
  const auto bytes = idx_bytes({3, 4, 5}, content);
  folder_.write("plain", bytes);
  write_gz(folder_.path("zipped"), bytes);
  for (const char* name : {"plain", "zipped"}) {
    auto idx = IdxFile::open(folder_.path(name));
    ASSERT_TRUE(idx.ok()) << idx.status().message();
    EXPECT_EQ(idx->items(), 3);
    EXPECT_THAT(idx->item_shape(), ElementsAre(4, 5));
    for (int i = 0; i < 3; ++i) {
      const auto item = idx->next();
      ASSERT_TRUE(item.ok() && item->has_value());
      EXPECT_EQ(**item, std::vector(content.begin() + i * 20, content.begin() + (i + 1) * 20));
    }
    EXPECT_FALSE(idx->next()->has_value());
  }
}

TEST_F(IdxFileTest, ReadsItemsLargerThanAPiece) {
  const auto content = random_bytes(3'000'001, 2);
  auto idx = IdxFile::open(folder_.write("a", idx_bytes({1, 3'000'001}, content)));
  ASSERT_TRUE(idx.ok());
  EXPECT_EQ(**idx->next(), content);
}

TEST_F(IdxFileTest, NamesTheFaultOfAHeader) {
  EXPECT_THAT(open_error({1, 0, 8, 1, 0, 0, 0, 1, 7}), HasSubstr("is not an idx file"));
  EXPECT_THAT(open_error({0, 0, 13, 1, 0, 0, 0, 1, 7}),
              HasSubstr("32-bit floats; expected unsigned bytes"));
  EXPECT_THAT(open_error({0, 0, 8, 0}), HasSubstr("0 dimensions; expected 1 to 4"));
  EXPECT_THAT(open_error({0, 0, 8, 5}), HasSubstr("5 dimensions"));
  EXPECT_THAT(open_error({0, 0, 8, 1, 0, 0, 0, 0}), HasSubstr("size 0 in dimension 0"));
  EXPECT_THAT(open_error({0, 0, 8, 2, 0, 0}), HasSubstr("ends early"));
  EXPECT_THAT(open_error({}), HasSubstr("ends early"));
  EXPECT_THAT(open_error({0, 0, 8, 3, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}),
              HasSubstr("items of more than"));
}

TEST_F(IdxFileTest, NamesMissingFilesAndFolders) {
  EXPECT_EQ(IdxFile::open(folder_.path("none")).status().code(), Code::kNotFound);
  EXPECT_THAT(IdxFile::open(folder_.path(".")).status().message(), HasSubstr("not a regular file"));
}

TEST_F(IdxFileTest, EveryCutFileIsRefused) {
  const auto bytes = idx_bytes({2, 3, 3}, random_bytes(18, 3));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto path = folder_.write("cut", std::span(bytes).first(length));
    EXPECT_THAT(read_error(path), HasSubstr("ends early")) << length;
  }
  EXPECT_EQ(read_error(folder_.write("whole", bytes)), "");
}

TEST_F(IdxFileTest, EveryCutOrDamagedGzipIsRefusedOrRead) {
  const auto bytes = idx_bytes({2, 30, 3}, random_bytes(180, 3));
  write_gz(folder_.path("a.gz"), bytes);
  std::ifstream file(folder_.path("a.gz"), std::ios::binary);
  const std::vector<uint8_t> zipped((std::istreambuf_iterator<char>(file)), {});
  for (size_t length = 0; length < zipped.size(); ++length) {
    const auto path = folder_.write("cut", std::span(zipped).first(length));
    EXPECT_NE(read_error(path), "") << length;
  }
  for (size_t at = 10; at < zipped.size(); ++at) {
    auto damaged = zipped;
    damaged[at] ^= 0x55;
    EXPECT_NE(read_error(folder_.write("bad", damaged)), "") << at;
  }
}

TEST_F(IdxFileTest, AHeaderThatClaimsTooManyItemsIsRefused) {
  const auto path =
      folder_.write("huge", idx_bytes({0xFFFFFFFF, 16384, 16384}, random_bytes(50, 4)));
  EXPECT_THAT(read_error(path), HasSubstr("item 0 of 4294967295"));
}

TEST_F(IdxFileTest, BytesAfterTheLastItemAreAnError) {
  const auto path = folder_.write("long", idx_bytes({2, 3}, random_bytes(7, 5)));
  EXPECT_THAT(read_error(path), HasSubstr("goes on after the last of the 2 items"));
}

TEST(IdxSignature, RecognizesIdxFiles) {
  EXPECT_TRUE(looks_like_idx(std::vector<uint8_t>{0, 0, 8, 3}));
  EXPECT_TRUE(looks_like_idx(std::vector<uint8_t>{0x1F, 0x8B}));
  EXPECT_FALSE(looks_like_idx(std::vector<uint8_t>{'1', ' ', '2', ' '}));
  EXPECT_FALSE(looks_like_idx({}));
}

}  // namespace
}  // namespace runnel
