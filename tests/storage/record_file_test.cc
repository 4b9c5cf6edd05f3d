// The file of a record: what is left after writes that fail or are cut off.
#include "storage/record_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "storage/record.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

class RecordFileTest : public ::testing::Test {
 protected:
  Folder folder() {
    auto folder = Folder::open(path_, writer_, disk_);
    EXPECT_TRUE(folder.ok()) << folder.status().message();
    return std::move(*folder);
  }
  Status write(const std::string& text, bool durable = false) {
    Folder into = folder();
    auto file = RecordFile::open(into, "r");
    return file.ok() ? file->write(into, text, durable) : file.status();
  }
  std::string read() {
    const auto file = RecordFile::open(folder(), "r");
    return file.ok() ? file->text().value_or("none") : "damaged";
  }
  uintmax_t size() const { return std::filesystem::file_size(path_ + "/r"); }
  void damage(size_t at, char byte) {
    std::fstream file(path_ + "/r", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  TestFolder holder_;
  std::string path_ = holder_.path("folder");
  std::string writer_ = "one";
  DiskCalls disk_ = DiskCalls::system();
};

TEST_F(RecordFileTest, HasTheTextThatWasWrittenLast) {
  EXPECT_EQ(read(), "none");
  for (const size_t bytes : {3, 100, 4032, 4033, 5000, 100000, 20000, 4, 5, 6, 0, 70000, 70000}) {
    for (const char letter : {'a', 'b', 'c'}) {
      const std::string text(bytes, letter);
      ASSERT_TRUE(write(text).ok());
      ASSERT_EQ(read(), text);
      EXPECT_LE(size(), std::max<size_t>(8192, 8 * (bytes + 64)));
    }
  }
  const std::string most(static_cast<size_t>(kMostRecordBytes), 'x');
  EXPECT_TRUE(write(most).ok());
  EXPECT_EQ(read(), most);
}

TEST_F(RecordFileTest, IsChangedInPlace) {
  ASSERT_TRUE(write("one").ok());
  const std::filesystem::path other = path_ + "/same";
  std::filesystem::create_hard_link(path_ + "/r", other);
  for (const char* const text : {"two", "three", "four"}) ASSERT_TRUE(write(text).ok());
  EXPECT_TRUE(std::filesystem::equivalent(path_ + "/r", other));
  EXPECT_TRUE(write(std::string(5000, 'x')).ok());
  EXPECT_FALSE(std::filesystem::equivalent(path_ + "/r", other)) << "it needs more room";
}

TEST_F(RecordFileTest, AWriteThatIsCutOffChangesNothing) {
  ASSERT_TRUE(write("one").ok());
  const std::string text(200, 't');
  int64_t left = 0;  // bytes that the disk takes before the process is killed
  disk_.write = [&](int descriptor, const void* bytes, size_t count) -> ssize_t {
    if (left <= 0) return errno = EIO, -1;
    const ssize_t taken = ::write(descriptor, bytes, std::min(count, static_cast<size_t>(left)));
    left -= taken;
    return taken;
  };
  std::string former = "one";
  for (int64_t size = 0; size < 264; size += 3) {
    left = size;
    EXPECT_FALSE(write(text).ok());
    EXPECT_EQ(read(), former) << size;
    if (size % 2 == 0) continue;
    left = 1000;
    former = std::to_string(size);
    EXPECT_TRUE(write(former).ok()) << "over the half of a text";
    EXPECT_EQ(read(), former);
  }
  left = 264;
  EXPECT_TRUE(write(text).ok());
  EXPECT_EQ(read(), text);
}

TEST_F(RecordFileTest, AFailedSyncOrCloseTakesTheTextBack) {
  ASSERT_TRUE(write("one", true).ok());
  bool fails = true;
  disk_.sync_file = [&](int descriptor) {
    return fails ? (errno = EIO, -1) : fdatasync(descriptor);
  };
  EXPECT_EQ(write("two", true).code(), Code::kUnavailable);
  EXPECT_EQ(read(), "one");
  fails = false;
  EXPECT_TRUE(write("two", true).ok());
  EXPECT_EQ(read(), "two");
  disk_.close_file = [&](int descriptor) {
    close(descriptor);
    return errno = ENOSPC, -1;
  };
  EXPECT_EQ(write("three").code(), Code::kResourceExhausted);
  EXPECT_EQ(read(), "two");
}

TEST_F(RecordFileTest, ATextThatWasTakenBackDoesNotReturnAfterALossOfPower) {
  ASSERT_TRUE(write("one", true).ok());
  int syncs = 0;
  disk_.sync_file = [&](int) { return ++syncs == 1 ? (errno = EIO, -1) : 0; };
  EXPECT_EQ(write("two", true).code(), Code::kUnavailable);
  EXPECT_EQ(syncs, 2) << "the disk may have the text, although its sync has failed";
  EXPECT_EQ(read(), "one");
}

// The other writer may have been killed before its sync. The text that it wrote is then only in the
// system's memory, and the older one is on the disk.
TEST_F(RecordFileTest, TheTextOfAnotherWriterIsSyncedBeforeTheOlderOneIsOverwritten) {
  ASSERT_TRUE(write("one", true).ok());
  std::string calls;
  disk_.write = [&](int descriptor, const void* bytes, size_t count) {
    calls += "write ";
    return ::write(descriptor, bytes, count);
  };
  disk_.sync_file = [&](int) { return calls += "sync ", 0; };
  disk_.sync_folder = [&](int) { return calls += "names ", 0; };
  writer_ = "two";
  EXPECT_TRUE(write("two", true).ok());
  EXPECT_EQ(calls, "sync names write sync ");
  calls.clear();
  EXPECT_TRUE(write("three", true).ok());
  EXPECT_EQ(calls, "write sync ") << "its own text";
  calls.clear();
  writer_ = "three";
  EXPECT_TRUE(write("four").ok());
  EXPECT_EQ(calls, "write ");
  writer_ = "four";
  disk_.sync_file = [&](int) { return errno = EIO, -1; };
  EXPECT_EQ(write("five", true).code(), Code::kUnavailable);
  EXPECT_EQ(calls, "write ") << "nothing was overwritten";
  EXPECT_EQ(read(), "four");
}

TEST_F(RecordFileTest, ANameWhoseSyncHasFailedIsSyncedByTheNextWrite) {
  std::string calls;
  bool fails = true;
  disk_.sync_file = [&](int) { return calls += "sync ", 0; };
  disk_.sync_folder = [&](int) {
    calls += "names ";
    return fails ? (errno = EIO, -1) : 0;
  };
  std::string text;
  for (const size_t bytes : {3, 5000}) {  // a new file, and one with more room
    fails = true;
    text = std::string(bytes, 'a');
    EXPECT_EQ(write(text, true).code(), Code::kUnavailable);
    EXPECT_EQ(read(), text) << "it has its name, but perhaps not on the disk";
    EXPECT_EQ(write(std::string(bytes, 'x'), true).code(), Code::kUnavailable);
    EXPECT_EQ(read(), text) << "nothing was overwritten";
    fails = false;
    calls.clear();
    text = std::string(bytes, 'b');
    EXPECT_TRUE(write(text, true).ok());
    EXPECT_EQ(calls, "sync names sync ");
    EXPECT_EQ(read(), text);
  }
}

TEST_F(RecordFileTest, IsReadOnADiskThatCannotBeWritten) {
  ASSERT_TRUE(write("one").ok());
  disk_.open_file = [](int folder, const char* name, int flags) {
    if ((flags & O_ACCMODE) != O_RDONLY) return errno = EROFS, -1;
    return openat(folder, name, flags);
  };
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(write("two").code(), Code::kUnavailable);
  EXPECT_EQ(read(), "one");
}

TEST_F(RecordFileTest, DamageIsNoticed) {
  ASSERT_TRUE(write("one").ok());
  ASSERT_TRUE(write("two").ok());
  ASSERT_EQ(size(), 8192U);
  for (const size_t at : {4096, 4100, 4104, 4112, 4120, 4151, 4160, 4162}) {
    const std::string whole = std::string(
        std::istreambuf_iterator<char>(std::ifstream(path_ + "/r", std::ios::binary).rdbuf()), {});
    damage(at, static_cast<char>(whole[at] ^ 0x40));
    EXPECT_EQ(read(), "one") << at;
    damage(at, whole[at]);
    EXPECT_EQ(read(), "two");
  }
  damage(4160, 'x');
  damage(64, 'x');
  EXPECT_EQ(read(), "damaged");
  EXPECT_EQ(write("three").code(), Code::kDataLoss);
  for (const uintmax_t bytes : {0, 1, 63, 8191, 1 << 27}) {
    std::filesystem::resize_file(path_ + "/r", bytes);
    EXPECT_EQ(read(), "damaged") << bytes;
  }
}

TEST_F(RecordFileTest, AReaderBesideAWriterGetsAWholeTextOrNone) {
  ASSERT_TRUE(write("0").ok());
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) {
      const std::string text = read();
      if (text == "damaged") continue;
      EXPECT_EQ(text, std::string(text.size(), text[0]));
    }
  });
  for (int i = 1; i < 2000; ++i) {
    EXPECT_TRUE(write(std::string(static_cast<size_t>(i), static_cast<char>('0' + i % 10))).ok());
  }
  over = true;
  reader.join();
}

}  // namespace
}  // namespace runnel
