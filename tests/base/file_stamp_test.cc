#include "base/file_stamp.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

TEST(FileStamp, DistinguishesAReplacedFile) {
  const TestFolder folder;
  folder.write("a", "same");
  const FileStamp before = file_stamp(folder.path("a"));
  EXPECT_EQ(file_stamp(folder.path("a")), before);
  folder.write("b", "same");
  std::filesystem::last_write_time(folder.path("b"),
                                   std::filesystem::last_write_time(folder.path("a")));
  std::filesystem::rename(folder.path("b"), folder.path("a"));
  EXPECT_NE(file_stamp(folder.path("a")), before) << "of the same size and time";
  EXPECT_EQ(file_stamp(folder.path("none")), FileStamp());
}

TEST(FileStamp, TheStampOfADirectoryCoversItsFilesExceptDocumentation) {
  const TestFolder folder;
  EXPECT_TRUE(directory_stamp(folder.path("none")).empty());
  folder.write("config.json", "{}");
  const auto before = directory_stamp(folder.path(""));
  EXPECT_EQ(before.size(), 1U);
  folder.write("README.md", "words");
  std::filesystem::create_directory(folder.path("inner"));
  EXPECT_EQ(directory_stamp(folder.path("")), before);
  folder.write("model.safetensors", "weights");
  EXPECT_NE(directory_stamp(folder.path("")), before);
}

}  // namespace
}  // namespace runnel
