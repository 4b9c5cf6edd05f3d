// How a new file of a folder gets to the disk, and how errors name files.
#include "storage/folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

#include "tests/base/test_files.h"

namespace runnel {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

// A call waits only a limited time for each piece of a state. So no sync may have to write a whole
// large state.
TEST(FolderTest, ALargeFileIsSyncedInParts) {
  const TestFolder holder;
  size_t unsynced = 0;
  size_t most = 0;  // bytes that a sync had to write
  int syncs = 0;
  int failing = 0;  // the sync that fails; 0: none
  DiskCalls disk = DiskCalls::system();
  disk.write = [&](int, const void*, size_t count) {  // keeps nothing
    unsynced += count;
    return static_cast<ssize_t>(count);
  };
  disk.sync_file = [&](int) {
    most = std::max(most, unsynced);
    unsynced = 0;
    return ++syncs == failing ? (errno = EIO, -1) : 0;
  };
  auto folder = Folder::open(holder.path("folder"), "one", disk);
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const auto write = [&](size_t pieces, bool durable) {
    unsynced = 0;
    syncs = 0;
    const auto next = [left = pieces]() mutable {
      return left == 0 ? std::string() : (--left, std::string(kPieceBytes, 'x'));
    };
    return folder->write_temporary("a", next, durable).status();
  };
  EXPECT_TRUE(write(1000, true).ok());
  EXPECT_LE(most, size_t{16} << 20);
  EXPECT_EQ(unsynced, 0U);
  EXPECT_TRUE(write(3, true).ok());
  EXPECT_EQ(syncs, 1) << "a small file";
  EXPECT_TRUE(write(1000, false).ok());
  EXPECT_EQ(syncs, 0) << "a file that need not be durable";

  const size_t files = folder->list()->size();
  failing = 2;
  EXPECT_EQ(write(1000, true).code(), Code::kUnavailable);
  EXPECT_EQ(syncs, 2) << "the file is not synced again";
  EXPECT_THAT(*folder->list(), ::testing::SizeIs(files)) << "nothing is left of it";
}

TEST(FolderTest, ErrorsNameTheFile) {
  const TestFolder holder;
  DiskCalls disk = DiskCalls::system();
  disk.sync_folder = [](int) { return errno = EIO, -1; };
  disk.open_file = [](int folder, const char*, int) { return openat(folder, ".", O_RDONLY); };
  const auto folder = Folder::open(holder.path("folder"), "one", disk);
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const std::string path = holder.path("folder");
  const auto a = folder->open_file("a");  // a directory, which cannot be read
  ASSERT_TRUE(a.ok()) << a.status().message();
  const std::string unreadable = "cannot read '" + path + "/a': Is a directory";
  EXPECT_EQ(folder->read_at(*a, 0, 1).status().message(), unreadable);
  EXPECT_EQ(folder->read("a", 10).status().message(), unreadable);
  EXPECT_EQ(folder->sync_names().message(), "cannot sync '" + path + "': Input/output error");
}

}  // namespace
}  // namespace runnel
