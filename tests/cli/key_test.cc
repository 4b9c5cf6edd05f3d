#include "cli/key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "config/server_config.h"
#include "tests/base/test_files.h"

namespace runnel {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class KeyTest : public testing::Test {
 protected:
  // Runs a command and returns its exit code.
  int run(int (*command)(const KeyOptions&, Console&), const KeyOptions& options) {
    out_.str("");
    err_.str("");
    Console console{.out = out_, .err = err_};
    return command(options, console);
  }
  KeyOptions options_of(const std::string& name) const {
    KeyOptions options;
    options.file = path_;
    options.entry.name = name;
    options.names = {name};
    return options;
  }
  std::vector<KeyEntry> entries() const { return read_key_file(path_).value(); }

  const TestFolder folder_;
  const std::string path_ = folder_.path("keys.jsonl");
  std::ostringstream out_, err_;
};

TEST_F(KeyTest, NewPrintsOnlyTheKeyAndKeepsItsHash) {
  KeyOptions options = options_of("ada");
  options.entry.calls = 3;
  options.models = {"b", "a"};
  ASSERT_EQ(run(run_key_new, options), kExitOk);
  const std::string key = out_.str().substr(0, out_.str().size() - 1);
  EXPECT_EQ(out_.str(), key + "\n");
  EXPECT_THAT(err_.str(), HasSubstr("calls 3, models a b"));
  EXPECT_THAT(err_.str(), Not(HasSubstr(key)));
  ASSERT_THAT(entries(), SizeIs(1));
  EXPECT_TRUE(is_same(entries()[0].digest, digest_of_key(key)));
  EXPECT_EQ(entries()[0].models, (std::set<std::string>{"a", "b"}));
}

TEST_F(KeyTest, AnotherKeyOfANameInheritsSettingsThatAreNotGiven) {
  KeyOptions options = options_of("ada");
  options.entry.calls = 3;
  options.entry.sessions = 9;
  options.entry.admin = true;
  options.models = {"m"};
  ASSERT_EQ(run(run_key_new, options), kExitOk);
  KeyOptions again = options_of("ada");
  again.entry.calls = 4;
  ASSERT_EQ(run(run_key_new, again), kExitOk);
  KeyEntry expected = entries()[0];
  expected.calls = 4;
  expected.digest = entries()[1].digest;
  EXPECT_EQ(entries()[1], expected);
  EXPECT_NE(entries()[0].digest, entries()[1].digest);
}

TEST_F(KeyTest, ListShowsNamesIdsAndQuotas) {
  EXPECT_EQ(run(run_key_list, options_of("")), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("keys.jsonl: cannot be opened"));
  ASSERT_EQ(run(run_key_new, options_of("ada")), kExitOk);
  KeyOptions bob = options_of("bob-2");
  bob.entry.values_per_second = 100'000;
  ASSERT_EQ(run(run_key_new, bob), kExitOk);
  ASSERT_EQ(run(run_key_list, options_of("")), kExitOk);
  EXPECT_EQ(out_.str(), "ada    " + key_id(entries()[0]) + "  no quotas\nbob-2  " +
                            key_id(entries()[1]) + "  values per second 100,000\n");
  KeyOptions json = options_of("");
  json.json = true;
  ASSERT_EQ(run(run_key_list, json), kExitOk);
  const Json listed = *parse_json(out_.str(), "out", {.bytes = 10000, .values = 100, .depth = 5});
  EXPECT_EQ(listed["keys"][1]["name"], "bob-2");
  EXPECT_EQ(listed["keys"][1]["values_per_second"], 100'000);
}

TEST_F(KeyTest, RemovesAllKeysOfANameOrOnlyTheOldOnes) {
  for (const char* name : {"ada", "bob", "ada", "ada"}) {
    ASSERT_EQ(run(run_key_new, options_of(name)), kExitOk);
  }
  const KeyEntry newest = entries()[3];
  KeyOptions old = options_of("ada");
  old.old = true;
  ASSERT_EQ(run(run_key_remove, old), kExitOk);
  ASSERT_THAT(entries(), SizeIs(2));
  EXPECT_EQ(entries()[0].name, "bob");
  EXPECT_EQ(entries()[1], newest);
  EXPECT_EQ(run(run_key_remove, options_of("carol")), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("there is no key of 'carol'"));
  ASSERT_EQ(run(run_key_remove, options_of("ada")), kExitOk);
  ASSERT_EQ(run(run_key_remove, options_of("bob")), kExitOk);
  ASSERT_EQ(run(run_key_list, options_of("")), kExitOk);
  EXPECT_EQ(out_.str(), "no keys\n");
}

TEST_F(KeyTest, AKeyThatCannotBePrintedIsRemoved) {
  ASSERT_EQ(run(run_key_new, options_of("ada")), kExitOk);
  std::ofstream full("/dev/full");
  Console console{.out = full, .err = err_};
  EXPECT_EQ(run_key_new(options_of("bob"), console), kExitFailed);
  EXPECT_THAT(err_.str(), HasSubstr("standard output, and is removed again"));
  ASSERT_THAT(entries(), SizeIs(1));
  EXPECT_EQ(entries()[0].name, "ada");
}

TEST_F(KeyTest, AKeyThatWouldMakeTheFileUnreadableIsRefused) {
  ASSERT_EQ(run(run_key_new, options_of("ada")), kExitOk);
  KeyOptions options = options_of("bob");
  for (int i = 0; i <= kMaxModels; ++i) options.models.push_back("m" + std::to_string(i));
  EXPECT_EQ(run(run_key_new, options), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("line 2: models: expected at most 64 names, found 65"));
  EXPECT_THAT(entries(), SizeIs(1));
}

TEST_F(KeyTest, FlagsAreChecked) {
  int exit_code = 0;
  Program program("test", "1.2.3");
  add_key(program.root());
  const auto parse = [&](std::vector<std::string> words) {
    std::ostringstream out, err;
    Console console{.out = out, .err = err};
    exit_code = program.run(std::move(words), console);
    return err.str();
  };
  EXPECT_THAT(parse({"key"}), HasSubstr("subcommand"));
  EXPECT_THAT(parse({"key", "new", "a b", "--file", path_}), HasSubstr("not 'a b'"));
  EXPECT_THAT(parse({"key", "new", "ada", "--calls", "0", "--file", path_}), HasSubstr("--calls"));
  EXPECT_TRUE(folder_.empty());
  EXPECT_THAT(parse({"key", "new", "ada", "--models", "a,b", "--admin", "--file", path_}),
              HasSubstr("A key of ada"));
  EXPECT_EQ(exit_code, kExitOk);
  ASSERT_THAT(entries(), SizeIs(1));
  EXPECT_EQ(entries()[0].models, (std::set<std::string>{"a", "b"}));
  EXPECT_TRUE(entries()[0].admin);
}

}  // namespace
}  // namespace runnel
