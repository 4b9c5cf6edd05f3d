#include "server/host/callers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <optional>
#include <sstream>
#include <vector>

#include "config/key_file.h"
#include "engine/account_usage.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr TimePoint kNow{std::chrono::seconds(1000)};

KeyEntry entry_of(const std::string& name, const std::string& key) {
  KeyEntry entry;
  entry.name = name;
  entry.digest = digest_of_key(key);
  return entry;
}

// Callers with a key file.
class CallersTest : public ::testing::Test {
 protected:
  void write(const std::vector<KeyEntry>& entries) { write_text(keys_text(entries)); }
  void write_text(const std::string& text) {
    // A new file each time: after a second write, the same file could have the same time and size.
    folder_.write("next", text);
    ASSERT_EQ(chmod(folder_.path("next").c_str(), 0600), 0);
    std::filesystem::rename(folder_.path("next"), path_);
  }
  Result<Caller> identify(const std::vector<std::string_view>& authorization) const {
    return callers_.identify(authorization, "ipv4:192.0.2.1:1");
  }
  Caller caller(std::string_view key) const {
    const std::string value = "Bearer " + std::string(key);
    const Result<Caller> found = identify({value});
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : Caller();
  }
  bool is_known(std::string_view key) const {
    const std::string value = "Bearer " + std::string(key);
    return identify({value}).ok();
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path("keys.jsonl");
  std::ostringstream log_text_;
  EventLog log_{"info", false, log_text_};
  Callers callers_;
};

TEST_F(CallersTest, WithoutKeysCallersAreDistinguishedByNetwork) {
  const Result<Caller> caller = identify({});
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->name, "");
  EXPECT_EQ(caller->account, "192.0.2.1");
  EXPECT_TRUE(caller->may_use("any"));
  EXPECT_FALSE(caller->admin);
  EXPECT_EQ(callers_.as_of_now(*caller).get(), &*caller);
  EXPECT_TRUE(identify({"Bearer of a key that nobody asks for"}).ok());
}

TEST_F(CallersTest, AKeySaysWhoCallsAndWhatTheyMayUse) {
  KeyEntry ada = entry_of("ada", "one");
  ada.calls = 1;
  ada.sessions = 2;
  ada.values_per_second = 3;
  ada.models = {"m"};
  ada.admin = true;
  write({entry_of("bob", "two"), ada});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  const Caller caller = this->caller("one");
  EXPECT_EQ(caller.name, "ada");
  EXPECT_EQ(caller.account, "ada");
  EXPECT_EQ(caller.limits, (CallerLimits{.calls = 1, .sessions = 2}));
  EXPECT_EQ(caller.usage->values_per_second(), 3);
  EXPECT_TRUE(caller.may_use("m"));
  EXPECT_FALSE(caller.may_use("n"));
  EXPECT_TRUE(caller.admin);
  EXPECT_EQ(this->caller("two").name, "bob");
}

TEST_F(CallersTest, InvalidAuthorizationsAreRefusedWithoutShowingThem) {
  write({entry_of("ada", "secret")});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  const std::string huge = "Bearer " + std::string(kMaxKeyBytes + 1, 's');
  const auto expect = [&](const std::vector<std::string_view>& authorization, const char* says) {
    const Status status = identify(authorization).status();
    EXPECT_EQ(status.code(), Code::kUnauthenticated);
    EXPECT_THAT(status.message(), HasSubstr(says));
    EXPECT_THAT(status.message(), Not(HasSubstr("secre")));
  };
  expect({}, "this server asks for a key");
  expect({"secret"}, "not of the form 'Bearer KEY'");
  expect({"Basic secret"}, "not of the form 'Bearer KEY'");
  expect({"Bearer "}, "not of the form 'Bearer KEY'");
  expect({"Bearer secre"}, "not one of this server's");
  expect({"Bearer secret "}, "not one of this server's");
  expect({huge}, "not one of this server's");
  expect({"Bearer secret", "Bearer secret"}, "more than once");
  EXPECT_TRUE(identify({"bearer secret"}).ok()) << "the scheme has no case";
}

TEST_F(CallersTest, AnInvalidFileAtTheStartIsAnError) {
  EXPECT_EQ(callers_.ask_for_keys(path_).code(), Code::kNotFound);
  write_text("rnl_1");
  EXPECT_EQ(callers_.ask_for_keys(path_).code(), Code::kInvalidArgument);
}

TEST_F(CallersTest, AChangedFileIsReadAgain) {
  write({entry_of("ada", "one"), entry_of("bob", "two")});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  const Caller ada = caller("one");
  const Caller bob = caller("two");
  KeyEntry slower = entry_of("bob", "two");
  slower.values_per_second = 5;
  write({entry_of("ada", "three"), slower});
  EXPECT_TRUE(is_known("one")) << "not before the file is looked at";
  callers_.refresh(log_, kNow);
  EXPECT_FALSE(is_known("one"));
  EXPECT_EQ(callers_.as_of_now(ada), nullptr);
  EXPECT_NE(callers_.as_of_now(bob), nullptr);
  EXPECT_EQ(bob.usage->values_per_second(), 5) << "calls that run keep to it too";
  EXPECT_EQ(caller("three").name, "ada");
  EXPECT_EQ(caller("three").usage, ada.usage) << "the account goes on";
  EXPECT_THAT(log_text_.str(), HasSubstr("info keys keys=2"));
}

TEST_F(CallersTest, ANewRateAppliesAtOnce) {
  KeyEntry entry = entry_of("ada", "one");
  entry.values_per_second = 1;
  write({entry});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  const auto usage = caller("one").usage;
  usage->charge(501, kNow);
  EXPECT_EQ(usage->behind(kNow), std::chrono::seconds(500));
  entry.values_per_second = 1000;
  write({entry});
  callers_.refresh(log_, kNow);
  EXPECT_EQ(usage->behind(kNow), std::chrono::milliseconds(500));
}

TEST_F(CallersTest, AnAccountLastsAsLongAsItsSessions) {
  write({entry_of("ada", "one")});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  const auto usage = caller("one").usage;  // a session keeps it alive
  write({});
  callers_.refresh(log_, kNow);
  write({entry_of("ada", "two")});
  callers_.refresh(log_, kNow);
  EXPECT_EQ(caller("two").usage, usage);
}

TEST_F(CallersTest, ABadNewFileIsLoggedOnceAndTheKeysStay) {
  write({entry_of("ada", "one")});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  write_text("{");
  callers_.refresh(log_, kNow);
  callers_.refresh(log_, kNow);
  EXPECT_TRUE(is_known("one"));
  const std::string text = log_text_.str();
  EXPECT_THAT(text, HasSubstr("warn keys message="));
  EXPECT_THAT(text, HasSubstr("keys.jsonl: line 1"));
  EXPECT_EQ(text.find("warn"), text.rfind("warn"));
  std::filesystem::remove(path_);
  callers_.refresh(log_, kNow);
  EXPECT_TRUE(is_known("one"));
  write({entry_of("ada", "two")});
  callers_.refresh(log_, kNow);
  EXPECT_TRUE(is_known("two"));
}

TEST_F(CallersTest, AFileThatCouldNotBeOpenedIsTriedAgain) {
  write({entry_of("ada", "one")});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  write({entry_of("ada", "two")});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  callers_.refresh(log_, kNow);
  callers_.refresh(log_, kNow);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string text = log_text_.str();
  EXPECT_THAT(text, HasSubstr("cannot be opened"));
  EXPECT_EQ(text.find("warn"), text.rfind("warn"));
  EXPECT_TRUE(is_known("one"));
  callers_.refresh(log_, kNow);
  EXPECT_TRUE(is_known("two"));
}

TEST_F(CallersTest, TheLastLineOfANameSetsItsQuotas) {
  KeyEntry before = entry_of("ada", "one");
  before.calls = 1;
  KeyEntry last = entry_of("ada", "two");
  last.calls = 5;
  write({before, last});
  ASSERT_TRUE(callers_.ask_for_keys(path_).ok());
  EXPECT_EQ(caller("one").limits.calls, 5);
  EXPECT_EQ(caller("two").limits.calls, 5);
  EXPECT_EQ(caller("one").usage, caller("two").usage);
}

TEST(PeerNetwork, IsAnAddressOfIpv4AndAPrefixOfIpv6AndTheSameForAllUnixSockets) {
  EXPECT_EQ(peer_network("ipv4:127.0.0.1:50051"), "127.0.0.1");
  EXPECT_EQ(peer_network("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:50051"), "2001:db8:1:2::/64");
  EXPECT_EQ(peer_network("ipv6:%5B2001:db8:1:2::1%5D:1"), "2001:db8:1:2::/64");
  EXPECT_EQ(peer_network("ipv6:%5B::1%5D:1"), "::/64");
  EXPECT_EQ(peer_network("ipv6:%5Bfe80::1%25eth0%5D:1"), "fe80::/64");
  EXPECT_EQ(peer_network("ipv6:%5B::ffff:192.0.2.7%5D:50051"), "192.0.2.7");
  for (const char* peer : {"unix", "unix:", "unix:/run/a", "unix:/run/b:1", "unix-abstract:a"}) {
    EXPECT_EQ(peer_network(peer), "unix");
  }
  for (const char* odd : {"", "ipv6:", "ipv6:x", "ipv6:%5B%5D", "inproc"}) peer_network(odd);
}

}  // namespace
}  // namespace runnel
