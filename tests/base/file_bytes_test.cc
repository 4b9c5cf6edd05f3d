#include "base/file_bytes.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::HasSubstr;

TEST(FileBytes, ReadsWhatWasWritten) {
  const TestFolder folder;
  const std::string path = folder.path("a");
  const auto bytes = random_bytes(2'500'000, 1);
  ASSERT_TRUE(write_file(path, bytes).ok());
  EXPECT_EQ(*read_file(path, 1 << 30), bytes);
  EXPECT_EQ(*read_file(path, 2'500'000), bytes);
  EXPECT_EQ(*read_head(path, 8), std::vector(bytes.begin(), bytes.begin() + 8));
  EXPECT_EQ(read_head(path, 1 << 30)->size(), bytes.size());
  ASSERT_TRUE(write_file(path, {}).ok());
  EXPECT_TRUE(read_file(path, 10)->empty());
}

TEST(FileBytes, LeavesNothingButTheFile) {
  const TestFolder folder;
  ASSERT_TRUE(write_file(folder.path("a"), random_bytes(10, 1)).ok());
  const std::filesystem::directory_iterator files(folder.path(""));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(FileBytes, NamesWhatIsWrong) {
  const TestFolder folder;
  EXPECT_EQ(read_file(folder.path("none"), 10).status().code(), Code::kNotFound);
  EXPECT_THAT(read_file(folder.path("."), 10).status().message(), HasSubstr("not a regular file"));
  folder.write("long", random_bytes(11, 1));
  EXPECT_THAT(read_file(folder.path("long"), 10).status().message(),
              HasSubstr("has more than 10 bytes"));
  EXPECT_THAT(check_writable(folder.path("no/where.png")).message(), HasSubstr("no directory"));
  EXPECT_THAT(check_writable(folder.path(".")).message(), HasSubstr("is a directory"));
  EXPECT_THAT(check_writable("").message(), HasSubstr("is empty"));
  EXPECT_TRUE(check_writable("somewhere.png").ok());
}

TEST(FileBytes, WritesIntoADeviceInsteadOfReplacingIt) {
  ASSERT_TRUE(write_file("/dev/null", random_bytes(10, 1)).ok());
  struct stat info{};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

}  // namespace
}  // namespace runnel
