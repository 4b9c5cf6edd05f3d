// A directory as a store: damaged files, failing disks, servers that die, and leftover files.
#include "storage/directory_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "storage/open_store.h"
#include "storage/record_key.h"
#include "tests/base/test_files.h"
#include "tests/storage/record_keys.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

class DirectoryStoreTest : public ::testing::Test {
 protected:
  DirectoryStoreTest() { options_.folder = folder_.path("store"); }

  std::unique_ptr<DirectoryStore> open() {
    auto store = DirectoryStore::open(options_, clock_);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(*store) : nullptr;
  }

  static Snapshot snapshot(int64_t position, const std::string& state) {
    return {position, [text = state]() mutable { return std::exchange(text, ""); }};
  }

  static void create(DirectoryStore& store, const std::string& key, const std::string& state) {
    const Snapshot given = snapshot(1, state);
    const auto made = store.create(key, {store.replica() + "/m"}, &given);
    ASSERT_TRUE(made.ok()) << made.status().message();
  }

  static int64_t begin(DirectoryStore& store) {
    const auto begun = store.begin(kKey, {.owner = store.replica() + "/m", .request = "x"});
    EXPECT_TRUE(begun.ok()) << begun.status().message();
    EXPECT_EQ(begun->outcome, FenceOutcome::kOk);
    return begun->epoch;
  }

  static Result<bool> end(DirectoryStore& store, int64_t epoch) {
    const Snapshot given = snapshot(2, std::string(5000, 'n'));
    return store.end(kKey, {store.replica() + "/m", epoch}, &given);
  }

  static Status load(DirectoryStore& store, const std::string& key) {
    const auto record = store.look(key);
    if (!record.ok()) return record.status();
    return store.load(key, **record, [](auto) { return Status(); });
  }

  std::string state_of(DirectoryStore& store, const std::string& key) const {
    return options_.folder + "/" + key + "." + std::to_string((*store.look(key))->state) + ".state";
  }

  // The names of the files that contain `part`.
  std::vector<std::string> names_with(const std::string& part) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
      const std::string name = entry.path().filename();
      if (name.find(part) != name.npos) names.push_back(name);
    }
    return names;
  }

  void make_old(const std::string& name) const {
    const timespec when[2] = {{.tv_sec = clock_.unix_time() - 7200, .tv_nsec = 0},
                              {.tv_sec = clock_.unix_time() - 7200, .tv_nsec = 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (options_.folder + "/" + name).c_str(), when, 0), 0);
  }

  const Clock clock_;
  const TestFolder folder_;
  DirectoryOptions options_{.folder = "",
                            .sync = SyncMode::kEach,
                            .times = {.ttl_ms = 100000000, .lease_ms = 600000, .timeout_ms = 5}};
};

TEST_F(DirectoryStoreTest, OnlyTheOwnerCanUseFiles) {
  create(*open(), kKey, std::string(100, 'a'));
  struct stat status = {};
  ASSERT_EQ(stat(options_.folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U) << entry.path();
  }
  ASSERT_EQ(chmod(options_.folder.c_str(), 0750), 0);
  EXPECT_THAT(DirectoryStore::open(options_, clock_).status().message(), HasSubstr("chmod 700"));
  options_.folder = folder_.path("none/store");
  EXPECT_EQ(DirectoryStore::open(options_, clock_).status().code(), Code::kInvalidArgument);
  options_.folder = folder_.write("file", std::string("x"));
  EXPECT_EQ(DirectoryStore::open(options_, clock_).status().code(), Code::kInvalidArgument);
}

TEST_F(DirectoryStoreTest, ADamagedRecordIsRefusedAndCanBeDeleted) {
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  create(*store, kOther, std::string(100, 'b'));
  const std::string path = options_.folder + "/" + kKey + ".record";
  std::filesystem::copy_file(options_.folder + "/" + kOther + ".record", path,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(load(*store, kKey).code(), Code::kDataLoss) << "of another session";
  std::filesystem::resize_file(path, 20);
  EXPECT_EQ(store->begin(kKey, {.owner = store->replica() + "/m", .request = "x"}).status().code(),
            Code::kDataLoss);
  std::ofstream(path) << std::string(100000, ' ');
  EXPECT_EQ(load(*store, kKey).code(), Code::kDataLoss);
  EXPECT_TRUE(load(*store, kOther).ok());
  EXPECT_TRUE(*store->remove(kKey));
  EXPECT_FALSE(store->look(kKey)->has_value());
  std::filesystem::create_directory(path);
  EXPECT_EQ(store->remove(kKey).status().code(), Code::kUnavailable) << "it is still there";
}

TEST_F(DirectoryStoreTest, ASwappedOrTruncatedStateFileIsRefused) {
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  create(*store, kOther, std::string(100, 'b'));
  EXPECT_TRUE(load(*store, kKey).ok());
  const std::string path = state_of(*store, kKey);
  std::filesystem::resize_file(path, 99);
  EXPECT_TRUE(load(*store, kKey).ok()) << "its checksum, which the server looks at, would not hold";
  std::filesystem::copy_file(state_of(*store, kOther), path,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(load(*store, kKey).code(), Code::kDataLoss) << "swapped";
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(load(*store, kKey).code(), Code::kDataLoss) << "torn";
  std::filesystem::remove(path);
  EXPECT_EQ(load(*store, kKey).code(), Code::kNotFound);
}

TEST_F(DirectoryStoreTest, ADeadServersLeaseEndsAtOnce) {
  create(*open(), kKey, std::string(100, 'a'));
  const pid_t child = fork();
  if (child == 0) {
    const auto store = open();
    begin(*store);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(names_with("server-").size(), 1U);
  const auto store = open();
  const auto begun = store->begin(kKey, {.owner = store->replica() + "/m", .request = "x"});
  EXPECT_EQ(begun->outcome, FenceOutcome::kOk) << "its lease is of ten minutes";
}

TEST_F(DirectoryStoreTest, ALiveServerKeepsItsLease) {
  const auto one = open();
  create(*one, kKey, std::string(100, 'a'));
  begin(*one);
  const auto two = open();
  EXPECT_EQ(two->begin(kKey, {.owner = two->replica() + "/m", .request = "x"})->outcome,
            FenceOutcome::kBusy);
}

TEST_F(DirectoryStoreTest, ALockIsWaitedForWithinBounds) {
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  auto folder = Folder::open(options_.folder, "w", DiskCalls::system());
  ASSERT_TRUE(folder.ok());
  const auto lock = folder->lock("lock-" + kKey.substr(0, 2), 0);
  ASSERT_TRUE(lock.ok()) << lock.status().message();
  const Status status =
      store->begin(kKey, {.owner = store->replica() + "/m", .request = "x"}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("for 5 ms"));
  EXPECT_TRUE(load(*store, kKey).ok()) << "whoever reads needs no lock";
}

TEST_F(DirectoryStoreTest, ANewStateIsWrittenWithoutTheLock) {
  const auto store = open();
  auto folder = Folder::open(options_.folder, "w", DiskCalls::system());
  ASSERT_TRUE(folder.ok());
  bool is_free = false;
  std::string state(100, 'a');
  const Snapshot given = {1, [&] {
                            is_free = folder->lock("lock-" + kKey.substr(0, 2), 0).ok();
                            return std::exchange(state, "");
                          }};
  EXPECT_NE(*store->create(kKey, {store->replica() + "/m"}, &given), 0);
  EXPECT_TRUE(is_free);
  EXPECT_TRUE(load(*store, kKey).ok());
}

TEST_F(DirectoryStoreTest, OfTwoNewSessionsWithTheSameKeyTheFirstStays) {
  const auto store = open();
  std::string state(100, 'b');
  const Snapshot given = {2, [&] {
                            if (!state.empty()) create(*store, kKey, std::string(100, 'a'));
                            return std::exchange(state, "");
                          }};
  EXPECT_EQ(*store->create(kKey, {store->replica() + "/m"}, &given), 0);
  EXPECT_EQ((*store->look(kKey))->position, 1);
  EXPECT_TRUE(load(*store, kKey).ok());
  EXPECT_TRUE(names_with("~").empty());
  EXPECT_EQ(names_with(".state").size(), 1U);
}

TEST_F(DirectoryStoreTest, AFailedSyncLeavesTheSessionAsItWas) {
  create(*open(), kKey, std::string(100, 'a'));
  bool fails = false;
  int syncs = 0;
  options_.disk.sync_file = [&](int descriptor) {
    ++syncs;
    if (fails) errno = EIO;
    return fails ? -1 : fdatasync(descriptor);
  };
  const auto store = open();
  const int64_t epoch = begin(*store);
  fails = true;
  syncs = 0;
  EXPECT_EQ(end(*store, epoch).status().code(), Code::kUnavailable);
  EXPECT_EQ(syncs, 1) << "a file whose sync has failed is not tried again";
  EXPECT_TRUE(names_with("~").empty());
  EXPECT_EQ(names_with(".state").size(), 1U);
  fails = false;
  EXPECT_EQ((*store->look(kKey))->position, 1);
  EXPECT_TRUE(load(*store, kKey).ok());
  EXPECT_TRUE(*store->end(kKey, {store->replica() + "/m", epoch}, nullptr));
}

TEST_F(DirectoryStoreTest, AFullDiskIsReported) {
  create(*open(), kKey, std::string(100, 'a'));
  bool full = false;
  options_.disk.write = [&](int descriptor, const void* bytes, size_t count) -> ssize_t {
    if (!full) return write(descriptor, bytes, std::min<size_t>(count, 7));
    errno = ENOSPC;
    return -1;
  };
  const auto store = open();
  const int64_t epoch = begin(*store);
  full = true;
  const Status status = end(*store, epoch).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
  EXPECT_TRUE(names_with("~").empty());
  full = false;
  EXPECT_TRUE(*end(*store, epoch));
  EXPECT_TRUE(load(*store, kKey).ok()) << "written seven bytes at a time";
}

// As over NFS, where the bytes of a file that is not synced are sent when it is closed.
TEST_F(DirectoryStoreTest, AFullDiskIsReportedWhenItIsNoticedAtTheEndOfAFile) {
  bool full = false;
  options_.disk.close_file = [&](int descriptor) {
    close(descriptor);
    if (full) errno = ENOSPC;
    return full ? -1 : 0;
  };
  for (const SyncMode mode : {SyncMode::kNone, SyncMode::kInterval, SyncMode::kEach}) {
    options_.sync = mode;
    const auto store = open();
    create(*store, kKey, std::string(100, 'a'));
    const int64_t epoch = begin(*store);
    full = true;
    EXPECT_EQ(end(*store, epoch).status().code(), Code::kResourceExhausted);
    EXPECT_TRUE(names_with("~").empty());
    EXPECT_EQ(names_with(".state").size(), 1U);
    EXPECT_EQ((*store->look(kKey))->position, 1);
    EXPECT_TRUE(load(*store, kKey).ok());
    full = false;
    EXPECT_TRUE(*end(*store, epoch));
    EXPECT_TRUE(*store->remove(kKey));
  }
}

TEST_F(DirectoryStoreTest, AStateWhoseRecordCannotBeWrittenIsRemoved) {
  create(*open(), kKey, std::string(100, 'a'));
  bool full = false;
  options_.disk.write = [&](int descriptor, const void* bytes, size_t count) -> ssize_t {
    constexpr size_t kMostOfARecord = 4096;  // the states here are larger
    if (!full || count > kMostOfARecord) return write(descriptor, bytes, count);
    errno = ENOSPC;
    return -1;
  };
  const auto store = open();
  const int64_t epoch = begin(*store);
  full = true;
  EXPECT_EQ(end(*store, epoch).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(names_with(".state").size(), 1U);
  full = false;
  EXPECT_TRUE(load(*store, kKey).ok());
}

TEST_F(DirectoryStoreTest, SyncsFollowTheSetting) {
  int files = 0;
  int folders = 0;
  int all = 0;
  options_.disk.sync_file = [&](int) { return ++files, 0; };
  options_.disk.sync_folder = [&](int) { return ++folders, 0; };
  options_.disk.sync_all = [&](int) { return ++all, 0; };
  for (const SyncMode mode : {SyncMode::kNone, SyncMode::kInterval, SyncMode::kEach}) {
    options_.sync = mode;
    const auto store = open();
    all = 0;
    EXPECT_TRUE(store->sync().ok());
    EXPECT_EQ(all, mode == SyncMode::kInterval ? 1 : 0) << "for a server that was killed";
    files = folders = all = 0;
    create(*store, kKey, std::string(100, 'a'));
    EXPECT_TRUE(store->sync().ok());
    EXPECT_TRUE(store->sync().ok()) << "nothing was written since";
    EXPECT_EQ(files, mode == SyncMode::kEach ? 2 : 0);
    EXPECT_EQ(folders, mode == SyncMode::kEach ? 2 : 0);
    EXPECT_EQ(all, mode == SyncMode::kInterval ? 1 : 0);
    files = folders = 0;
    begin(*store);
    EXPECT_EQ(files, mode == SyncMode::kEach ? 1 : 0);
    EXPECT_EQ(folders, 0) << "the record keeps its file";
    EXPECT_TRUE(*store->remove(kKey));
  }
  options_.sync = SyncMode::kInterval;
  options_.disk.sync_all = [](int) { return errno = EIO, -1; };
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  EXPECT_EQ(store->sync().code(), Code::kUnavailable);
}

TEST_F(DirectoryStoreTest, AFailedSyncOfTheFileSystemIsTriedAgain) {
  options_.sync = SyncMode::kInterval;
  int all = 0;
  bool fails = true;
  options_.disk.sync_all = [&](int) {
    ++all;
    if (fails) errno = EIO;
    return fails ? -1 : 0;
  };
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  EXPECT_EQ(store->sync().code(), Code::kUnavailable);
  EXPECT_EQ(store->sync().code(), Code::kUnavailable);
  fails = false;
  EXPECT_TRUE(store->sync().ok());
  EXPECT_EQ(all, 3) << "nothing was written since";
  EXPECT_TRUE(store->sync().ok());
  EXPECT_EQ(all, 3);
}

TEST_F(DirectoryStoreTest, WhatIsWrittenDuringASyncIsSyncedByTheNextOne) {
  options_.sync = SyncMode::kInterval;
  int all = 0;
  options_.disk.sync_all = [&](int) { return ++all, 0; };
  DirectoryStore* syncs = nullptr;  // syncs just before bytes are written
  options_.disk.write = [&](int descriptor, const void* bytes, size_t count) {
    if (syncs != nullptr) {
      EXPECT_TRUE(syncs->sync().ok());
    }
    return write(descriptor, bytes, count);
  };
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  const int64_t epoch = begin(*store);
  EXPECT_TRUE(store->sync().ok());
  syncs = store.get();
  EXPECT_TRUE(*end(*store, epoch));
  syncs = nullptr;
  all = 0;
  EXPECT_TRUE(store->sync().ok());
  EXPECT_EQ(all, 1);
}

TEST_F(DirectoryStoreTest, TheStateOfAnIdleSessionIsOnTheDiskBeforeItsLogIsDropped) {
  int files = 0;
  size_t states = 0;  // at the last sync
  options_.disk.sync_file = [&](int) {
    states = names_with(".state").size();
    return ++files, 0;
  };
  for (const SyncMode mode : {SyncMode::kNone, SyncMode::kInterval, SyncMode::kEach}) {
    options_.sync = mode;
    const auto store = open();
    create(*store, kKey, std::string(100, 'a'));
    const int64_t saved = begin(*store);
    ASSERT_TRUE(*store->log(kKey, {store->replica() + "/m", saved}, {2, "x"}));
    files = 0;
    ASSERT_TRUE(*store->settle(kKey, saved, snapshot(2, std::string(5000, 'n'))));
    EXPECT_EQ(files, mode == SyncMode::kNone ? 0 : 2) << "of the state, and of the record";
    EXPECT_TRUE(files == 0 || states == 2) << "the former state is still there";
    EXPECT_EQ(names_with(".state").size(), 1U);
    EXPECT_TRUE(load(*store, kKey).ok());
    EXPECT_TRUE(*store->remove(kKey));
  }
}

TEST_F(DirectoryStoreTest, AnIdleSessionKeepsItsLogIfItsNewStateCannotBeWritten) {
  bool full = false;
  size_t most = 0;  // the most bytes that the full disk accepts in a write
  options_.disk.write = [&](int descriptor, const void* bytes, size_t count) -> ssize_t {
    if (!full || count > most) return write(descriptor, bytes, count);
    errno = ENOSPC;
    return -1;
  };
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  const int64_t saved = begin(*store);
  ASSERT_TRUE(*store->log(kKey, {store->replica() + "/m", saved}, {2, "x"}));
  const Record before = **store->look(kKey);
  full = true;
  for (const size_t bytes : {4096, 1 << 20}) {  // room for the record only, then for the state, too
    most = bytes;
    const Snapshot given = snapshot(2, std::string(5000, 'n'));
    EXPECT_EQ(store->settle(kKey, saved, given).status().code(), Code::kResourceExhausted);
    EXPECT_EQ(**store->look(kKey), before);
    EXPECT_EQ(names_with(".state").size(), 1U);
    EXPECT_TRUE(load(*store, kKey).ok());
  }
  full = false;
  EXPECT_TRUE(*store->settle(kKey, saved, snapshot(2, std::string(5000, 'n'))));
}

TEST_F(DirectoryStoreTest, LeftoversAreRemovedOnceTheyAreOld) {
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  const std::string temporary = kKey + ".record~gone.1";
  const std::string orphan = kOther + ".5.state";
  const std::string server = "server-" + std::string(32, 'd');
  for (const std::string& name : {temporary, orphan, server}) {
    std::ofstream(options_.folder + "/" + name) << "x";
  }
  EXPECT_TRUE(store->sweep().ok());
  EXPECT_EQ(names_with(orphan).size(), 1U) << "it may be of a call that runs";
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
    make_old(entry.path().filename());
  }
  EXPECT_TRUE(store->sweep().ok());
  for (const std::string& name : {temporary, orphan, server}) {
    EXPECT_TRUE(names_with(name).empty()) << name;
  }
  EXPECT_EQ(names_with("server-").size(), 1U) << "its own";
  EXPECT_TRUE(load(*store, kKey).ok());
  options_.times.ttl_ms = -1;
  EXPECT_TRUE(open()->sweep().ok());
  EXPECT_TRUE(names_with(".record").empty()) << "expired";
}

TEST_F(DirectoryStoreTest, ARecordOfVersion020GetsANewFileWhenItChanges) {
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  const std::string path = options_.folder + "/" + kKey;
  const std::string text = record_text(**store->look(kKey), kKey);
  for (const bool is_cut_off : {false, true}) {
    std::filesystem::remove(path + ".record");
    std::ofstream(path + ".json") << text;
    EXPECT_EQ((*store->look(kKey))->position, 1);
    EXPECT_TRUE(store->sweep().ok());
    const int64_t epoch = begin(*store);
    EXPECT_FALSE(std::filesystem::exists(path + ".json"));
    if (is_cut_off) std::ofstream(path + ".json") << text;  // as it is if the server is killed
    EXPECT_EQ((*store->look(kKey))->epoch, epoch);
    EXPECT_TRUE(*store->end(kKey, {store->replica() + "/m", epoch}, nullptr));
  }
  EXPECT_TRUE(*store->remove(kKey));
  EXPECT_FALSE(store->look(kKey)->has_value());
  EXPECT_FALSE(*store->remove(kKey));
  std::ofstream(path + ".json") << text;
  EXPECT_TRUE(*store->remove(kKey));
  EXPECT_FALSE(store->look(kKey)->has_value());
  std::ofstream(path + ".json") << "{}";
  EXPECT_THAT(store->look(kKey).status().message(), HasSubstr(kKey + ".json: "));
}

TEST_F(DirectoryStoreTest, ARecordIsFoundWhileItGetsItsNewFile) {
  std::string moved;  // the record, until its old file is opened
  options_.disk.open_file = [&](int folder, const char* name, int flags) {
    if (!moved.empty() && std::string(name).ends_with(".json")) {
      std::filesystem::rename(std::exchange(moved, ""), options_.folder + "/" + kKey + ".record");
    }
    return openat(folder, name, flags);
  };
  const auto store = open();
  create(*store, kKey, std::string(100, 'a'));
  const std::string aside = folder_.path("aside");
  std::filesystem::rename(options_.folder + "/" + kKey + ".record", aside);
  EXPECT_FALSE(store->look(kKey)->has_value());
  moved = aside;
  EXPECT_TRUE(store->look(kKey)->has_value());
  EXPECT_TRUE(moved.empty());
}

TEST_F(DirectoryStoreTest, AListLosesSessionsThatAreGone) {
  const std::string list = record_list("model", "");
  const auto store = open();
  const NewSession session = {.owner = store->replica() + "/m", .list = list, .id = "a.json"};
  const std::string path = options_.folder + "/" + kKey + ".record";
  const auto listed = [&] { return *store->list(list, "", 10); };
  ASSERT_NE(*store->create(kKey, session, nullptr), 0);
  EXPECT_TRUE(store->sweep().ok());
  EXPECT_EQ(listed().size(), 1U);
  std::filesystem::resize_file(path, 20);
  EXPECT_TRUE(store->sweep().ok());
  EXPECT_EQ(listed().size(), 1U) << "a record that is damaged is there";
  std::filesystem::remove(path);
  EXPECT_TRUE(store->sweep().ok());
  EXPECT_TRUE(listed().empty()) << "it was deleted, and its server died";
  ASSERT_NE(*store->create(kKey, session, nullptr), 0);
  options_.times.ttl_ms = -1;
  EXPECT_TRUE(open()->sweep().ok());
  EXPECT_TRUE(listed().empty()) << "expired";
}

TEST_F(DirectoryStoreTest, AListThatCannotBeReadToItsEndIsAnError) {
  int left = 1 << 20;  // entries that can be read before the disk fails
  options_.disk.next_entry = [&](DIR* folder) -> dirent* {
    if (left-- > 0) return readdir(folder);
    return errno = EIO, nullptr;
  };
  const auto store = open();
  const std::string list = record_list("model", "");
  ASSERT_NE(
      *store->create(kKey, {.owner = store->replica() + "/m", .list = list, .id = "a"}, nullptr),
      0);
  EXPECT_EQ(store->list(list, "", 10)->size(), 1U);
  EXPECT_TRUE(store->sweep().ok());
  for (const int read : {0, 1, 3}) {
    left = read;
    const Status listed = store->list(list, "", 10).status();
    EXPECT_EQ(listed.code(), Code::kUnavailable) << read;
    EXPECT_THAT(listed.message(), HasSubstr("cannot list")) << read;
    left = read;
    EXPECT_EQ(store->sweep().code(), Code::kUnavailable) << read;
  }
}

TEST_F(DirectoryStoreTest, ASessionThatCannotBeCreatedIsInNoList) {
  options_.disk.write = [](int, const void*, size_t) -> ssize_t { return errno = ENOSPC, -1; };
  const auto store = open();
  const NewSession session = {
      .owner = store->replica() + "/m", .list = record_list("model", ""), .id = "a"};
  EXPECT_EQ(store->create(kKey, session, nullptr).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(names_with("listed-").empty());
  EXPECT_TRUE(names_with("~").empty());
}

TEST_F(DirectoryStoreTest, ASessionWhoseNameMayNotBeDurableIsInItsList) {
  bool fails = false;
  options_.disk.sync_folder = [&](int descriptor) {
    if (fails) errno = EIO;
    return fails ? -1 : fsync(descriptor);
  };
  const auto store = open();
  fails = true;
  const std::string list = record_list("model", "");
  const NewSession session = {.owner = store->replica() + "/m", .list = list, .id = "a"};
  EXPECT_EQ(store->create(kKey, session, nullptr).status().code(), Code::kUnavailable);
  fails = false;
  EXPECT_TRUE(store->look(kKey)->has_value());
  EXPECT_EQ(store->list(list, "", 10)->size(), 1U);
  EXPECT_TRUE(*store->remove(kKey));
  EXPECT_TRUE(store->list(list, "", 10)->empty());
}

TEST_F(DirectoryStoreTest, ASessionInTheFileOfAnExpiredOneHasADurablePlaceInItsList) {
  int folders = 0;
  options_.disk.sync_folder = [&](int) { return ++folders, 0; };
  options_.times.ttl_ms = -1;
  const auto store = open();
  const NewSession session = {
      .owner = store->replica() + "/m", .list = record_list("model", ""), .id = "a"};
  for (const bool is_first : {true, false}) {
    folders = 0;
    EXPECT_NE(*store->create(kKey, session, nullptr), 0);
    EXPECT_EQ(folders, 1) << is_first;
  }
}

TEST(OpenStore, OpensTheStoreOfTheUrl) {
  const TestFolder folder;
  EXPECT_EQ(open_store({.url = "/a"}, real_clock()).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(open_store({.url = "memory"}, real_clock()).ok());
  const auto store = open_store({.url = "dir:" + folder.path("s"), .sync = "none"}, real_clock());
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->replica().size(), 32U);
  const Status none = open_store({.url = "unix:" + folder.path("none")}, real_clock()).status();
  EXPECT_EQ(none.code(), Code::kUnavailable);
  EXPECT_THAT(none.message(), HasSubstr("cannot be reached: No such file or directory"));
}

}  // namespace
}  // namespace runnel
