#include "cli/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/field.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  int exit_code = 0;
  std::optional<ServerConfig> config;
  Rereading rereading;
  std::string error;  // on stderr
};

Parsed parse(std::vector<std::string> words) {
  Parsed parsed;
  std::ostringstream out, err;
  Console console{.out = out, .err = err};
  Program program("test", "1.2.3");
  add_serve_command(program.root(), [&](const ServerConfig& config, const Rereading& rereading) {
    parsed.config = config;
    parsed.rereading = rereading;
    return 17;
  });
  words.insert(words.begin(), "serve");
  parsed.exit_code = program.run(std::move(words), console);
  parsed.error = err.str();
  return parsed;
}

TEST(ServeCommand, ADirectoryIsEnough) {
  const Parsed parsed = parse({"zoo/mnist"});
  EXPECT_EQ(parsed.exit_code, 17);
  ServerConfig expected;
  expected.models = {{"", "zoo/mnist"}};
  EXPECT_EQ(parsed.config, expected);
}

TEST(ServeCommand, SettingsAreReadAgainFromTheFileAndTheFlagsOfTheStart) {
  const TempDir directory;
  const std::string file = directory.path() + "/a.json";
  write_file(file, R"({"models": [{"path": "x"}], "limits": {"sessions": 5, "samples": 6}})");
  const Parsed parsed = parse({"--config", file, "--sessions", "7"});
  ASSERT_TRUE(parsed.config) << parsed.error;
  EXPECT_TRUE(parsed.rereading.on_hang_up);
  write_file(file, R"({"models": [{"path": "y"}], "limits": {"sessions": 8, "samples": 9}})");
  const Result<ServerConfig> again = parsed.rereading.read();
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->models[0].path, directory.path() + "/y");
  EXPECT_EQ(again->limit(limits::kSessions), 7);
  EXPECT_EQ(changed_fields(*parsed.config, *again), std::vector<std::string>{"limits.samples"});
  EXPECT_FALSE(parse({"zoo/mnist"}).rereading.on_hang_up) << "it goes with its terminal";
}

TEST(ServeCommand, FlagsOverrideTheFile) {
  const TempDir directory;
  const std::string file = directory.path() + "/a.json";
  write_file(file, R"({"models": [{"path": "x"}], "address": "[::1]:1", "threads": 2,
                       "log": {"json": true}, "limits": {"sessions": 5, "samples": 6}})");
  Parsed parsed = parse({"--config", file});
  ASSERT_TRUE(parsed.config) << parsed.error;
  EXPECT_EQ(parsed.config->models[0].path, directory.path() + "/x");
  EXPECT_TRUE(parsed.config->log_json);
  parsed = parse({"-c", file, "m=other", "second", "--sessions", "7", "--threads=3",
                  "--log-json=false", "--log-level", "debug"});
  ASSERT_TRUE(parsed.config) << parsed.error;
  const std::vector<ModelConfig> models = {{"m", "other"}, {"", "second"}};
  EXPECT_EQ(parsed.config->models, models);
  EXPECT_EQ(parsed.config->address, "[::1]:1");
  EXPECT_EQ(parsed.config->threads, 3);
  EXPECT_FALSE(parsed.config->log_json);
  EXPECT_EQ(parsed.config->log_level, "debug");
  EXPECT_EQ(parsed.config->limit(limits::kSessions), 7);
  EXPECT_EQ(parsed.config->limit(limits::kSamples), 6);
}

TEST(ServeCommand, EachChatTemplateBelongsToItsModel) {
  const Parsed parsed =
      parse({"zoo/a", "--chat-template", "a=x.jinja", "m=zoo/b", "--chat-template", "m=y.jinja"});
  ASSERT_TRUE(parsed.config) << parsed.error;
  EXPECT_EQ(parsed.config->models[0].chat_template, "x.jinja");
  EXPECT_EQ(parsed.config->models[1].chat_template, "y.jinja");
}

TEST(ServeCommand, AFlagWithAnEmptyValueLeavesTheNextWord) {
  const Parsed parsed = parse({"--http-address=", "zoo/mnist", "--rewind="});
  ASSERT_TRUE(parsed.config) << parsed.error;
  EXPECT_EQ(parsed.config->http_address, "");
  ASSERT_EQ(parsed.config->models.size(), 1U);
  EXPECT_EQ(parsed.config->models[0].path, "zoo/mnist");
  EXPECT_EQ(parse({"zoo/mnist", "--address="}).error,
            "runnel serve: --address is empty; it must have at least one character\n");
}

TEST(ServeCommand, ASwitchTakesNoDirectory) {
  const Parsed parsed = parse({"--log-json", "zoo/mnist"});
  ASSERT_TRUE(parsed.config) << parsed.error;
  EXPECT_TRUE(parsed.config->log_json);
  EXPECT_EQ(parsed.config->models[0].path, "zoo/mnist");
}

TEST(ServeCommand, AnErrorIsOneLine) {
  const auto expect = [](const std::vector<std::string>& words, const std::string& message) {
    const Parsed parsed = parse(words);
    EXPECT_EQ(parsed.exit_code, 2) << message;
    EXPECT_FALSE(parsed.config);
    EXPECT_EQ(parsed.error, "runnel serve: " + message + "\n");
  };
  expect({"x", "--sessions", "-1"}, "--sessions is -1; it must be between 0 and 1048576");
  expect({"x", "--sessions", "many"},
         "--sessions is 'many'; it must be a whole number between 0 and 1048576");
  expect({"x", "--isa", "neon"},
         "--isa is 'neon'; it must be auto, portable, avx2, avx512, avx512bf16 or amx");
  expect({"x", "--log-json=perhaps"}, "--log-json is 'perhaps'; it must be true or false");
  expect({"x", "--log-level", "\x1b[31mred\n"},
         "--log-level is '\\x1b[31mred\\x0a'; it must be debug, info, warn or error");
  expect({"x", "--log-json=\x1b"}, "--log-json is '\\x1b'; it must be true or false");
  expect({"x", "--threads", "\x1b"},
         "--threads is '\\x1b'; it must be a whole number between 0 and 256");
  EXPECT_THAT(parse({"x", "--rewind", "\x1b"}).error, HasSubstr("rewind is '\\x1b'; it must be"));
  expect({"x", "--backend", "gpu"}, "--backend is 'gpu'; it must be auto, cpu or cuda");
  expect(
      {"x", "--config", "/no/such"},
      "/no/such: cannot be opened: No such file or directory; expected a config file (--config)");
  expect({"x", "--chat-template", "y"}, "--chat-template is 'y'; expected NAME=FILE");
  expect({"=x"}, "a bundle is given as '=DIRECTORY'; expected DIRECTORY or NAME=DIRECTORY");
  expect({"x", "--address", "here"},
         "address is 'here'; expected host:port with a port of 0 to 65535, as 127.0.0.1:50051, "
         "[::]:50051 or unix:PATH");
  EXPECT_THAT(parse({}).error, HasSubstr("there is nothing to serve"));
  EXPECT_NE(parse({"x", "--no-such-flag"}).exit_code, 0);
}

}  // namespace
}  // namespace runnel
