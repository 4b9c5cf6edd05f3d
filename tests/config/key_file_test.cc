#include "config/key_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/hex.h"
#include "tests/base/case_name.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kDigest(64, 'a');

std::string line(const std::string& more = "", const std::string& digest = kDigest) {
  return R"({"name": "ada", "sha256": ")" + digest + "\"" + more + "}\n";
}

int mode_of(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return static_cast<int>(info.st_mode & 07777);
}

std::string contents(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

KeyEntry entry_of(const std::string& name, const std::string& key) {
  KeyEntry entry;
  entry.name = name;
  entry.digest = digest_of_key(key);
  return entry;
}

// Adds an entry. Returns the status.
Status add(const std::string& path, const KeyEntry& entry) {
  return change_key_file(path, true, [&](std::vector<KeyEntry>& entries) {
    entries.push_back(entry);
    return Status();
  });
}

TEST(KeyFile, AKeyHas256BitsAndAPrefix) {
  std::set<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.insert(new_key());
  EXPECT_EQ(keys.size(), 100U);
  for (const std::string& key : keys) {
    EXPECT_EQ(key.size(), 4U + 64U);
    EXPECT_TRUE(key.starts_with("rnl_"));
    EXPECT_TRUE(bytes_of_hex(key.substr(4)).has_value());
  }
}

TEST(KeyFile, ADigestIsTheSha256OfTheKey) {
  const KeyDigest digest = digest_of_key("abc");
  EXPECT_EQ(hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size())),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(is_same(digest, digest_of_key("abc")));
  EXPECT_FALSE(is_same(digest, digest_of_key("abd")));
}

TEST(KeyFile, ReadsNamesQuotasAndRights) {
  const auto entries = parse_keys(
      "\n" + line(R"(, "calls": 4, "sessions": 8, "values_per_second": 1000, "admin": true)") +
          R"(  {"name": "bob", "sha256": ")" + std::string(64, 'b') + R"(", "models": ["m"]})",
      "f");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 2U);
  const KeyEntry& ada = entries->front();
  EXPECT_EQ(ada.name, "ada");
  EXPECT_EQ(ada.calls, 4);
  EXPECT_EQ(ada.sessions, 8);
  EXPECT_EQ(ada.values_per_second, 1000);
  EXPECT_FALSE(ada.models.has_value());
  EXPECT_TRUE(ada.admin);
  EXPECT_EQ(key_id(ada), "aaaaaaaaaaaaaaaa");
  const KeyEntry& bob = entries->back();
  EXPECT_FALSE(bob.calls || bob.sessions || bob.values_per_second || bob.admin);
  EXPECT_EQ(bob.models, std::set<std::string>{"m"});
}

TEST(KeyFile, AWrittenFileReadsBackTheSame) {
  KeyEntry entry = entry_of("ada", "one");
  entry.calls = 1;
  entry.values_per_second = 2;
  entry.models = {"a", "b"};
  entry.admin = true;
  const std::vector<KeyEntry> entries = {entry, entry_of("bob", "two")};
  EXPECT_EQ(*parse_keys(keys_text(entries), "f"), entries);
}

struct BadKeys {
  std::string text, message;

  friend void PrintTo(const BadKeys& of, std::ostream* out) { *out << of.text; }
};

class BadKeyFile : public ::testing::TestWithParam<BadKeys> {};

TEST_P(BadKeyFile, IsRefusedWithOnePreciseError) {
  const Status status = parse_keys(GetParam().text, "f").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

const std::string kOther = R"({"name": "bob", "sha256": ")" + std::string(64, 'b') + "\"}\n";

INSTANTIATE_TEST_SUITE_P(
    All, BadKeyFile,
    ::testing::Values(
        BadKeys{kOther + "rnl_123\n", "f: line 2: "},
        BadKeys{"[]", "f: line 1: the file: expected an object, found an array"},
        BadKeys{R"({"name": "ada"})",
                "f: line 1: sha256: expected 64 hexadecimal digits, found no such key"},
        BadKeys{line("", "abc"), "f: line 1: sha256: expected 64 hexadecimal digits, found 'abc'"},
        BadKeys{line("", std::string(64, 'A')), "f: line 1: sha256: expected 64 hexadecimal"},
        BadKeys{
            R"({"name": "a b", "sha256": ")" + kDigest + "\"}",
            "f: line 1: name: expected 1 to 128 characters of A-Z a-z 0-9 . _ : -, found 'a b'"},
        BadKeys{line(R"(, "calls": 0)"), "f: line 1: calls: expected an integer from 1 to"},
        BadKeys{line(R"(, "values_per_second": 100000001)"), "values_per_second: expected an"},
        BadKeys{line(R"(, "sessions": 1.5)"), "f: line 1: sessions: expected an integer"},
        BadKeys{line(R"(, "models": "m")"), "f: line 1: models: expected an array of names"},
        BadKeys{line(R"(, "models": [""])"), "f: line 1: models: expected 1 to 128 characters"},
        BadKeys{line(R"(, "admin": 1)"), "f: line 1: admin: expected true or false, found 1"},
        BadKeys{line(R"(, "admn": true)"), "f: line 1: the file: expected one of the keys name"},
        BadKeys{line(R"(, "calls": 1, "calls": 2)"), "f: line 1: "},
        BadKeys{line() + kOther + line(), "f: line 3: the key is that of line 1"},
        BadKeys{std::string(kMaxKeyLineBytes + 1, ' ') + line(), "f: line 1: "}),
    [](const auto& info) { return case_name(info.index, info.param.text); });

TEST(KeyFile, AChangeMakesTheFileWithoutAccessForOthers) {
  const TestFolder folder;
  const std::string path = folder.path("keys.jsonl");
  const mode_t before = umask(0);
  EXPECT_TRUE(add(path, entry_of("ada", "one")).ok());
  umask(before);
  EXPECT_EQ(mode_of(path), 0600);
  EXPECT_THAT(*read_key_file(path), SizeIs(1));
  ASSERT_TRUE(add(path, entry_of("bob", "two")).ok());
  EXPECT_EQ(mode_of(path), 0600);
  EXPECT_THAT(*read_key_file(path), SizeIs(2));
}

TEST(KeyFile, AFileThatOthersMayReadOrChangeIsRefused) {
  const TestFolder folder;
  const std::string path = folder.write("keys.jsonl", line());
  for (const int mode : {0644, 0660, 0604, 0602}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const Status status = read_key_file(path).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(),
                HasSubstr("its mode is 0" + std::to_string(mode / 64) +
                          std::to_string(mode / 8 % 8) + std::to_string(mode % 8)));
    EXPECT_THAT(status.message(), HasSubstr("chmod 600"));
    EXPECT_FALSE(add(path, entry_of("bob", "two")).ok());
  }
  for (const int mode : {0600, 0400, 0640, 0440}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(read_key_file(path).ok());
  }
}

TEST(KeyFile, AChangeKeepsOwnerGroupAndMode) {
  const TestFolder folder;
  const std::string path = folder.path("keys.jsonl");
  ASSERT_TRUE(add(path, entry_of("ada", "one")).ok());
  const bool root = geteuid() == 0;  // only root may change a file's owner
  const uid_t owner = root ? 1234 : geteuid();
  const gid_t group = root ? 2345 : getegid();
  ASSERT_EQ(chown(path.c_str(), owner, group), 0);
  for (const int mode : {0640, 0600, 0400}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(add(path, entry_of("bob", std::to_string(mode))).ok());
    struct stat info{};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, owner);
    EXPECT_EQ(info.st_gid, group);
    EXPECT_EQ(mode_of(path), mode);
  }
}

TEST(KeyFile, AChangeFollowsALink) {
  const TestFolder folder;
  const std::string path = folder.path("keys.jsonl");
  const std::string link = folder.path("link");
  ASSERT_EQ(symlink("keys.jsonl", link.c_str()), 0);
  ASSERT_TRUE(add(link, entry_of("ada", "one")).ok());
  ASSERT_TRUE(add(link, entry_of("bob", "two")).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(*read_key_file(path), SizeIs(2));
}

TEST(KeyFile, AChangeThatFailsLeavesTheFile) {
  const TestFolder folder;
  const std::string path = folder.path("keys.jsonl");
  EXPECT_EQ(change_key_file(path, false, [](auto&) { return Status(); }).code(), Code::kNotFound);
  EXPECT_TRUE(folder.empty());
  ASSERT_TRUE(add(path, entry_of("ada", "one")).ok());
  const std::string text = contents(path);
  const Status status = change_key_file(path, false, [](std::vector<KeyEntry>& entries) {
    entries.clear();
    return not_found("nobody");
  });
  EXPECT_EQ(status.message(), "nobody");
  EXPECT_EQ(contents(path), text);
}

TEST(KeyFile, ConcurrentChangesAreAllKept) {
  const TestFolder folder;
  const std::string path = folder.path("keys.jsonl");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(add(path, entry_of("n" + std::to_string(i), std::to_string(i))).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(*read_key_file(path), SizeIs(8));
}

}  // namespace
}  // namespace runnel
