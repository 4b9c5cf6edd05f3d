#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::HasSubstr;

std::string random_text(int64_t count) { return std::string(as_text(random_bytes(count, 1))); }

TEST(File, ReadsAWrittenFile) {
  const TestFolder folder;
  const std::string path = folder.path("a");
  const std::string bytes = random_text(2'500'000);
  ASSERT_TRUE(replace_file(path, bytes).ok());
  EXPECT_EQ(*read_file(path, 1 << 30), bytes);
  EXPECT_EQ(*read_file(path, 2'500'000), bytes);
  EXPECT_EQ(*read_head(path, 8), bytes.substr(0, 8));
  EXPECT_EQ(read_head(path, 1 << 30)->size(), bytes.size());
  ASSERT_TRUE(replace_file(path, "").ok());
  EXPECT_TRUE(read_file(path, 10)->empty());
}

TEST(File, ReplacingAFileLeavesNoTemporaryFile) {
  const TestFolder folder;
  ASSERT_TRUE(replace_file(folder.path("a"), random_text(10)).ok());
  const std::filesystem::directory_iterator files(folder.path(""));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(File, ReplacingAFileLeavesOtherFilesAlone) {
  const TestFolder folder;
  const std::string other = folder.write("other", random_bytes(4, 1));
  const std::string link = folder.path("a.part" + std::to_string(getpid()));
  std::filesystem::create_symlink(other, link);
  ASSERT_TRUE(replace_file(folder.path("a"), random_text(10)).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link)) << "a name that somebody could guess";
  EXPECT_EQ(std::filesystem::file_size(other), 4U);
}

TEST(File, ErrorsNameTheFileAndTheCause) {
  const TestFolder folder;
  const Status none = read_file(folder.path("none"), 10).status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_EQ(none.message(), folder.path("none") + ": cannot be opened: No such file or directory");
  folder.write("long", random_bytes(11, 1));
  EXPECT_EQ(read_file(folder.path("long"), 10).status().message(),
            folder.path("long") + ": expected at most 10 bytes, found more");
  EXPECT_EQ(read_file(folder.path("long/in"), 10).status().code(), Code::kNotFound);
  EXPECT_THAT(read_file("a\nb", 10).status().message(), HasSubstr("a\\x0ab: cannot be opened"));
  EXPECT_THAT(check_writable(folder.path("no/where.png")).message(), HasSubstr("no directory"));
  EXPECT_THAT(check_writable(folder.path(".")).message(), HasSubstr("is a directory"));
  EXPECT_THAT(check_writable("").message(), HasSubstr("is empty"));
  EXPECT_TRUE(check_writable("somewhere.png").ok());
}

TEST(File, RefusesOtherFilesWithoutWaitingForThem) {
  const TestFolder folder;
  const Status directory = read_file(folder.path("."), 10).status();
  EXPECT_EQ(directory.code(), Code::kInvalidArgument);
  EXPECT_THAT(directory.message(), HasSubstr("not a regular file; expected a file, found a dir"));
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_head(folder.path("pipe"), 1).status().message(), HasSubstr("found a pipe"));
}

TEST(File, WritesIntoADeviceInsteadOfReplacingIt) {
  ASSERT_TRUE(replace_file("/dev/null", random_text(10)).ok());
  struct stat info = {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST(File, WritesIntoAnOpenFileInsteadOfReplacingItsLink) {
  const TestFolder folder;
  const int file = ::open(folder.path("a").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  const std::string link = folder.path("link");  // as /dev/stdout is one
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(file), link);
  EXPECT_TRUE(replace_file(link, "one ").ok());
  EXPECT_TRUE(replace_file("/dev/fd/" + std::to_string(file), "two ").ok());
  EXPECT_EQ(::write(file, "three", 5), 5);
  ::close(file);
  EXPECT_EQ(*read_file(folder.path("a"), 100), "one two three");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  const int read_only = ::open(folder.path("a").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_THAT(check_writable("/dev/fd/" + std::to_string(read_only)).message(),
              HasSubstr("it is open only for reading"));
  ::close(read_only);
  std::filesystem::create_symlink("a", folder.path("other"));
  EXPECT_TRUE(replace_file(folder.path("other"), "four").ok());
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path("other"))) << "this one is replaced";
  EXPECT_EQ(*read_file(folder.path("a"), 100), "one two three");
}

TEST(File, ADeviceMayBeInAFolderThatCannotBeWritten) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(chmod(folder.path("").c_str(), 0500), 0);
  EXPECT_TRUE(check_writable(folder.path("pipe")).ok());
  ASSERT_EQ(chmod(folder.path("").c_str(), 0700), 0);
  EXPECT_TRUE(check_writable("/dev/null").ok());
}

TEST(File, IsPrivateIfNobodyElseMayReadOrChangeIt) {
  const TestFolder folder;
  const std::string path = folder.path("key");
  folder.write("key", random_bytes(4, 1));
  for (const int mode : {0600, 0400, 0640, 0644, 0660, 0602, 0601}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const Status status = RegularFile::open(path)->check_private();
    EXPECT_EQ(status.ok(), mode == 0600 || mode == 0400 || mode == 0640) << mode;
  }
  ASSERT_EQ(chmod(path.c_str(), 0664), 0);
  EXPECT_EQ(RegularFile::open(path)->check_private().message(),
            path +
                ": its mode is 0664, so that others may read or change it; expected 0600, or "
                "0640 for a group that reads it: chmod 600 it");
}

}  // namespace
}  // namespace runnel
