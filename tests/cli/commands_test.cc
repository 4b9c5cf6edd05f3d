#include "cli/commands.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/session_state.h"
#include "client/client.h"
#include "client/model_choice.h"
#include "tests/base/test_files.h"
#include "tests/cli/fake_server.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kSeconds = 600;  // until a command counts as hung

class CommandsTest : public testing::Test {
 protected:
  int health() {
    HealthOptions options;
    options.server.address = server_.address();
    options.timeout = kSeconds;
    return run_health(options, captured_.console());
  }
  int info(const InfoOptions& options) { return run_info(options, captured_.console()); }
  InfoOptions of_server() const {
    InfoOptions options;
    options.server.address = server_.address();
    return options;
  }
  // Runs a command line as the program does.
  int parse(const std::vector<std::string>& words) {
    Program program("Talks to a server", "1.2.3");
    add_client_commands(program.root());
    CapturedConsole captured;
    const int exit_code = program.run(words, captured.console());
    parse_error_ = captured.err();
    return exit_code;
  }

  CapturedConsole captured_;
  FakeServer server_{{fake_image_model("small"), fake_symbol_model("text")}};
  TestFolder folder_;
  std::string parse_error_;
};

TEST_F(CommandsTest, HealthFollowsTheServer) {
  EXPECT_EQ(health(), kExitOk);
  EXPECT_EQ(captured_.out(), "SERVING\n");
  server_.set_serving(false);
  EXPECT_EQ(health(), kExitFailed);
  EXPECT_EQ(captured_.err(), "runnel: " + server_.address() + " does not serve: NOT_SERVING\n");
}

TEST_F(CommandsTest, HealthWaitsUntilItServes) {
  server_.set_serving(false);
  std::atomic<int> asked = 0;
  server_.before_health = [&] {
    if (++asked == 3) server_.set_serving(true);
  };
  HealthOptions options;
  options.server.address = server_.address();
  options.timeout = kSeconds;
  options.wait = kSeconds;
  EXPECT_EQ(run_health(options, captured_.console()), kExitOk);
  EXPECT_GE(asked, 3);
}

TEST_F(CommandsTest, HealthPrintsJson) {
  HealthOptions options;
  options.server.address = server_.address();
  options.timeout = kSeconds;
  options.json = true;
  EXPECT_EQ(run_health(options, captured_.console()), kExitOk);
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["serving"], true);
  EXPECT_EQ(json["status"], "SERVING");
}

TEST_F(CommandsTest, ReloadReportsTheOutcomeForEachModel) {
  server_.reload_report.add_added("new");
  server_.reload_report.add_kept("text");
  server_.reload_report.add_needs_restart("address");
  ReloadOptions options;
  options.server.address = server_.address();
  EXPECT_EQ(run_reload(options, captured_.console()), kExitOk);
  EXPECT_EQ(captured_.out(),
            "added     new\nkept      text\n"
            "not used  address: it is read when the server starts\n");
}

TEST_F(CommandsTest, ReloadFailsWhereAModelIsRefused) {
  auto& refused = *server_.reload_report.add_refused();
  refused.set_model("new");
  refused.set_reason("it is\nbroken");
  ReloadOptions options;
  options.server.address = server_.address();
  options.json = true;
  EXPECT_EQ(run_reload(options, captured_.console()), kExitFailed);
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["refused"][0]["model"], "new");
  EXPECT_EQ(json["refused"][0]["reason"], "it is\nbroken");
  EXPECT_TRUE(json["added"].empty());
}

TEST(ModelChoice, AnAliasNamesItsModelUnlessAModelHasThatName) {
  v1::ListModelsResponse models;
  for (const char* name : {"a", "b"}) *models.add_models() = fake_symbol_model(name);
  models.mutable_models(1)->add_aliases("latest");
  models.mutable_models(1)->add_aliases("a");
  EXPECT_EQ(choose_model(models, "latest")->name, "b");
  EXPECT_EQ(choose_model(models, "a")->name, "a");
  EXPECT_EQ(choose_model(models, "c").status().code(), Code::kNotFound);
}

TEST_F(CommandsTest, AMissingServerIsNamedAtOnce) {
  const std::string nobody = "127.0.0.1:1";
  HealthOptions health;
  health.server.address = nobody;
  health.timeout = 5 * kSeconds;
  InfoOptions info;
  info.server.address = nobody;
  info.timeout = 5 * kSeconds;
  GenerateOptions generate;
  generate.server.address = nobody;
  ScoreOptions score;
  score.server.address = nobody;
  const Clock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(run_health(health, captured_.console()), kExitFailed);
  EXPECT_EQ(run_info(info, captured_.console()), kExitFailed);
  EXPECT_EQ(run_generate(generate, captured_.console()), kExitFailed);
  EXPECT_EQ(run_score(score, captured_.console()), kExitFailed);
  EXPECT_LT(clock.now() - start, std::chrono::duration<double>(kSeconds));
  EXPECT_THAT(captured_.err(),
              AllOf(HasSubstr("no server answers at 127.0.0.1:1"), HasSubstr("runnel serve")));
}

TEST_F(CommandsTest, AFileOfAccessThatCannotBeReadEndsWith2AtOnce) {
  const std::string none = folder_.path("none");
  const std::vector<std::vector<std::string>> commands = {
      {"health", "--wait", "600"},
      {"info"},
      {"reload"},
      {"session", "list"},
      {"session", "save", "a", folder_.path("state")},
      {"generate", "--model", "small"},
      {"chat"},
  };
  for (std::vector<std::string> words : commands) {
    words.insert(words.end(), {"--server", server_.address(), "--api-key-file", none});
    EXPECT_EQ(parse(words), kExitUsage) << testing::PrintToString(words);
    EXPECT_THAT(parse_error_, AllOf(StartsWith("runnel: "), HasSubstr(none)));
  }
  EXPECT_EQ(parse({"health", "--server", server_.address(), "--tls-ca", none}), kExitUsage);
  EXPECT_EQ(parse({"health", "--server", "192.0.2.1:1", "--api-key", "secret"}), kExitUsage);
}

TEST_F(CommandsTest, InfoOfAServerListsItsModels) {
  EXPECT_EQ(info(of_server()), kExitOk);
  EXPECT_THAT(captured_.out(), AllOf(StartsWith("model "), HasSubstr("1,234,567"),
                                     HasSubstr("270,336 bytes (264 KiB) per session"),
                                     HasSubstr("256 fit, 255 are free"), HasSubstr("fake-1")));
  EXPECT_EQ(captured_.err(), "");
}

TEST_F(CommandsTest, InfoOfAServerAsJson) {
  InfoOptions options = of_server();
  options.json = true;
  EXPECT_EQ(info(options), kExitOk);
  const auto json = nlohmann::json::parse(captured_.out());
  ASSERT_EQ(json["models"].size(), 2);
  EXPECT_EQ(json["models"][1]["name"], "text");
  EXPECT_EQ(json["models"][0]["sessions_free"], 255);
}

TEST_F(CommandsTest, InfoOfAServerSaysWhetherAModelHasAChatTemplate) {
  v1::ModelInfo with = fake_text_model("with"), without = fake_text_model("without");
  with.mutable_chat()->set_template_name("chat_template.jinja");
  without.mutable_chat()->set_missing("no template");
  const FakeServer server({with, without});
  InfoOptions options;
  options.server.address = server.address();
  EXPECT_EQ(info(options), kExitOk);
  EXPECT_THAT(captured_.out(), AllOf(ContainsRegex("chat +chat_template.jinja\n"),
                                     ContainsRegex("chat +none: no template\n")));
}

TEST_F(CommandsTest, InfoShowsAFailedCall) {
  server_.list_status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  EXPECT_EQ(info(of_server()), kExitFailed);
  EXPECT_EQ(captured_.err(), "runnel: UNAVAILABLE: draining\n");
}

TEST_F(CommandsTest, InfoOfABundleNeedsNoServer) {
  const Spec spec = small_image_spec();
  write_bundle(folder_.path(""), spec, random_tensors(spec, 1));
  InfoOptions options;
  options.server.address = "127.0.0.1:1";
  options.bundle = folder_.path("");
  EXPECT_EQ(info(options), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(), AllOf(HasSubstr("images of 5 x 4, grey"), HasSubstr("2 layers"),
                                     HasSubstr("mixture_of_logistics of 3"), HasSubstr("sha-256 "),
                                     HasSubstr("stored position table")));
}

TEST_F(CommandsTest, InfoSaysHowManyBytesAPositionTakes) {
  const Spec spec = small_softmax_spec();
  write_bundle(folder_.path(""), spec, random_tensors(spec, 1));
  InfoOptions options;
  options.bundle = folder_.path("");
  EXPECT_EQ(info(options), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(), AllOf(ContainsRegex("attention +softmax"),
                                     HasSubstr("per session: 176 for each of 300 positions")));
  EXPECT_THAT(captured_.out(), HasSubstr("; by default, a server adds 1,024 bytes for the last"));
}

TEST_F(CommandsTest, InfoOfABundleNamesItsChatTemplate) {
  const Spec spec = small_text_spec();
  write_bundle(folder_.path(""), spec, random_tensors(spec, 1));
  InfoOptions options;
  options.bundle = folder_.path("");
  options.json = true;
  const auto chat = [&] {
    CapturedConsole captured;
    EXPECT_EQ(run_info(options, captured.console()), kExitOk) << captured.err();
    return nlohmann::json::parse(captured.out())["chat"].get<std::string>();
  };
  EXPECT_EQ(chat(), "none: there is no template among its files");
  write_file(folder_.path("chat_template.jinja"), "{{ raise_exception('no users') }}");
  EXPECT_THAT(chat(), AllOf(StartsWith("none: "), HasSubstr("no users")));
  write_file(folder_.path("chat_template.jinja"),
             "{% for m in messages %}[{{ m.content }}]{% endfor %}");
  EXPECT_EQ(chat(), "chat_template.jinja");
  options.json = false;
  EXPECT_EQ(info(options), kExitOk);
  EXPECT_THAT(captured_.out(), ContainsRegex("\nchat +chat_template.jinja\n"));
}

TEST_F(CommandsTest, InfoOfABundleAsJson) {
  const Spec spec = small_symbol_spec();
  write_bundle(folder_.path(""), spec, random_tensors(spec, 1));
  InfoOptions options;
  options.bundle = folder_.path("");
  options.json = true;
  EXPECT_EQ(info(options), kExitOk) << captured_.err();
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["state_bytes"], spec.state_bytes());
  EXPECT_EQ(json["parameters"], spec.parameters());
  EXPECT_EQ(json["weight_digest"].get<std::string>().size(), 64);
  EXPECT_EQ(json["spec"]["name"], spec.name);
}

TEST_F(CommandsTest, InfoOfAMissingBundleEndsWith2) {
  InfoOptions options;
  options.bundle = folder_.path("none");
  EXPECT_EQ(info(options), kExitUsage);
  EXPECT_THAT(captured_.err(), AllOf(StartsWith("runnel: "), HasSubstr("none")));
}

TEST_F(CommandsTest, TheCommandLineRunsCommands) {
  EXPECT_EQ(parse({"health", "--server", server_.address(), "--timeout", "120"}), kExitOk);
  EXPECT_EQ(parse({"info", "--server", server_.address(), "--json"}), kExitOk);
  const std::string sheet = folder_.path("sheet.png");
  EXPECT_EQ(parse({"generate", "--server", server_.address(), "--model", "small", "--count", "3",
                   "--seed", "18446744073709551615", "--temperature", "0.7", "--out", sheet}),
            kExitOk);
  EXPECT_TRUE(std::filesystem::exists(sheet));
  EXPECT_EQ(server_.last_request().sampling().seed(), UINT64_MAX);
  EXPECT_EQ(server_.last_request().sampling().temperature(), 0.7F);
  const std::string values = folder_.write("values", "1 2 3\n");
  EXPECT_EQ(parse({"score", values, "--server", server_.address(), "--model", "text", "--first",
                   "1", "--jobs", "2"}),
            kExitOk);
}

TEST_F(CommandsTest, TheCommandLineRefusesUnknownWordsAndInvalidValues) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"generate", "--colour"},
      {"generate", "--count", "0"},
      {"generate", "--count", "many"},
      {"generate", "--count", "4097"},
      {"generate", "--seed", "-1"},
      {"generate", "--seed", "18446744073709551616"},
      {"generate", "--rows", "3"},
      {"generate", "--prompt-image", "a.png"},
      {"generate", "--prompt-image", "a.png", "--rows", "2", "--values", "1"},
      {"generate", "--top-log-probs", "21"},
      {"generate", "--timeout", "0"},
      {"generate", "--timeout", "nan"},
      {"generate", "--top-p", "1.5"},
      {"generate", "--max-queue-time", "nan"},
      {"generate", "--seed", "010"},
      {"generate", "--max-values", "0x10"},
      {"generate", "--max-values", "9223372036854775808"},
      {"load", "--rate", "1", "--seed", "18446744073709551616"},
      {"load", "--sweep", "0.5,nan"},
      {"chat", "a", "b"},
      {"chat", "--max-values", "many"},
      {"chat", "none", "--server", server_.address()},
      {"draw", "--rows", "3"},
      {"draw", "--seconds", "-1"},
      {"session"},
      {"session", "delete"},
      {"session", "show"},
      {"session", "fork"},
      {"session", "fork", "a", "b", "--count", "2"},
      {"session", "save", "a"},
      {"session", "load"},
      {"session", "rewind", "a"},
      {"session", "rewind", "a", "b"},
      {"generate", "--from", "a", "--session", "b"},
      {"score"},
      {"score", "a", "--jobs", "0"},
      {"score", "a", "--first", "0"},
      {"score", "a", "--text", "--first", "3"},
      {"info", "a", "--server", "b:1"},
      {"health", "--timeout", "-1"},
  };
  for (const auto& words : wrong) {
    EXPECT_EQ(parse(words), kExitUsage) << testing::PrintToString(words);
    EXPECT_THAT(parse_error_, StartsWith("runnel: "));
    EXPECT_EQ(parse_error_.find('\n'), parse_error_.size() - 1) << parse_error_;
  }
}

TEST_F(CommandsTest, TheCommandLineSuggestsTheNearestName) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> meant = {
      {{"genrate"}, "there is no command 'genrate'; did you mean 'generate'?; see 'runnel --help'"},
      {{"xyz"}, "there is no command 'xyz'; see 'runnel --help'"},
      {{"session", "lsit"},
       "there is no command 'lsit'; did you mean 'list'?; see 'runnel session --help'"},
      {{"generate", "--cuont", "3"},
       "'runnel generate' has no flag '--cuont'; did you mean '--count'?; see 'runnel generate "
       "--help'"},
      {{"generate", "--colourful"},
       "'runnel generate' has no flag '--colourful'; see 'runnel generate --help'"},
      {{"health", "now"}, "'runnel health' takes no word 'now' here; see 'runnel health --help'"},
  };
  for (const auto& [words, line] : meant) {
    EXPECT_EQ(parse(words), kExitUsage);
    EXPECT_EQ(parse_error_, "runnel: " + line + "\n");
  }
}

TEST_F(CommandsTest, TheCommandLineChecksTheFormOfAnAddress) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"http://127.0.0.1:50051", "leave out 'http://'"},
      {"127.0.0.1", "without a port; expected host:port"},
      {"::1", "write IPv6 as [::1]:50051"},
      {"localhost:http", "expected host:port"},
      {"localhost:0", "expected host:port"},
      {":50051", "expected host:port"},
  };
  for (const auto& [address, part] : wrong) {
    for (const char* command : {"generate", "info", "health", "load"}) {
      EXPECT_EQ(parse({command, "--server", address}), kExitUsage);
      EXPECT_THAT(parse_error_, HasSubstr(part)) << address;
    }
  }
  for (const char* address : {"localhost:1", "[::1]:50051", "unix:/run/runnel", "dns:///a:1"}) {
    EXPECT_EQ(check_server(address), "");
  }
}

TEST_F(CommandsTest, ListsAndDeletesSessions) {
  server_.sessions = {"first", "second", "third"};
  SessionOptions options;
  options.server.address = server_.address();
  options.model = "text";
  ASSERT_EQ(run_session(options, captured_.console()), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(),
              AllOf(StartsWith("first   position 1,000, IDLE, idle for 7 s\nsecond  position"),
                    HasSubstr("third   position 1,002")));
  options.ids = {"first", "none", "third"};
  EXPECT_EQ(run_session(options, captured_.console()), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("NOT_FOUND: no session 'none'"));
  EXPECT_THAT(server_.sessions, testing::ElementsAre("second"));
}

TEST_F(CommandsTest, AListOfSessionsWithoutEndIsAnError) {
  SessionOptions options;
  options.server.address = server_.address();
  options.model = "text";
  int pages = 0;
  server_.page_after = [&](const std::string& /*token*/) { return ++pages, "same"; };
  EXPECT_EQ(run_session(options, captured_.console()), kExitFailed);
  EXPECT_EQ(pages, 2);
  EXPECT_THAT(captured_.err(), HasSubstr("a page names itself as the next one"));
  pages = 0;
  server_.page_after = [&](const std::string& /*token*/) { return std::to_string(++pages); };
  EXPECT_EQ(run_session(options, captured_.console()), kExitFailed);
  EXPECT_EQ(pages, 10000);
  EXPECT_THAT(captured_.err(), HasSubstr("has more than 10,000 pages"));
}

TEST_F(CommandsTest, AnInterruptEndsADeletion) {
  server_.sessions = {"first", "second"};
  server_.before_delete = [](const grpc::ServerContext& context) {
    kill(getpid(), SIGINT);
    wait_until_cancelled(context);
  };
  SessionOptions options;
  options.server.address = server_.address();
  options.model = "text";
  options.ids = {"first", "second"};
  EXPECT_EQ(run_session(options, captured_.console()), kExitInterrupted);
  EXPECT_EQ(captured_.err(), "runnel: interrupted\n");
}

TEST_F(CommandsTest, ShowsTheSessionsNamed) {
  server_.sessions = {"first", "second"};
  SessionOptions options;
  options.server.address = server_.address();
  options.model = "text";
  options.ids = {"second", "none"};
  options.shows = true;
  EXPECT_EQ(run_session(options, captured_.console()), kExitFailed);
  EXPECT_THAT(captured_.out(), StartsWith("second  position "));
  EXPECT_THAT(captured_.err(), HasSubstr("NOT_FOUND: no session 'none'"));
  options.ids = {"first"};
  options.json = true;
  CapturedConsole shown;
  ASSERT_EQ(run_session(options, shown.console()), kExitOk) << shown.err();
  const auto json = nlohmann::json::parse(shown.out());
  ASSERT_EQ(json["sessions"].size(), 1U);
  EXPECT_EQ(json["sessions"][0]["id"], "first");
  EXPECT_EQ(server_.sessions.size(), 2U) << "none was deleted";
}

TEST(SessionCommands, SpeakOfTheirOwnFlags) {
  TestServer test(served_fake("fake"));
  ASSERT_TRUE(test.create("a").ok());
  SessionStateOptions options;
  options.server.address = test.server.address();
  options.timeout = kSeconds;
  options.id = "a";
  const auto refusal = [&](int (*run)(const SessionStateOptions&, Console&)) {
    CapturedConsole captured;
    EXPECT_EQ(run(options, captured.console()), kExitFailed);
    return captured.err();
  };
  EXPECT_THAT(refusal(run_session_rewind), HasSubstr("start it with --rewind"));
  options.count = 20;
  EXPECT_THAT(refusal(run_session_fork),
              HasSubstr("--count asks for 20 states, and the server keeps 8 in all"));
  const TestFolder folder;
  options.file = folder.path("state");
  options.expires = 10;
  EXPECT_THAT(refusal(run_session_save), HasSubstr("--expires-in needs a seal"));
  options.expires.reset();
  CapturedConsole saved;
  ASSERT_EQ(run_session_save(options, saved.console()), kExitOk) << saved.err();
  EXPECT_THAT(refusal(run_session_load), HasSubstr("ALREADY_EXISTS: session 'a' exists already"));
}

TEST_F(CommandsTest, ListsSessionsAsJson) {
  server_.sessions = {"one"};
  SessionOptions options;
  options.server.address = server_.address();
  options.json = true;
  options.ids = {"one"};
  EXPECT_EQ(run_session(options, captured_.console()), kExitUsage) << "two models, none named";
  options.ids.clear();
  options.model = "text";
  ASSERT_EQ(run_session(options, captured_.console()), kExitOk) << captured_.err();
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["sessions"][0]["id"], "one");
  EXPECT_EQ(json["sessions"][0]["idle_seconds"], 7);
}

TEST_F(CommandsTest, WithoutAModelTheSessionsOfAllModelsAreListed) {
  server_.sessions = {"one"};
  SessionOptions options;
  options.server.address = server_.address();
  ASSERT_EQ(run_session(options, captured_.console()), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(), AllOf(StartsWith("small:\none  position"), HasSubstr("text:\none")));
}

TEST_F(CommandsTest, ServerAndModelComeFromTheEnvironment) {
  setenv("RUNNEL_SERVER", server_.address().c_str(), 1);
  setenv("RUNNEL_MODEL", "text", 1);
  EXPECT_EQ(parse({"generate", "--max-values", "1"}), kExitOk) << parse_error_;
  EXPECT_EQ(server_.last_request().model(), "text");
  EXPECT_EQ(parse({"health", "--server", "127.0.0.1:1"}), kExitFailed) << "a flag goes before it";
  const Spec spec = small_symbol_spec();
  write_bundle(folder_.path(""), spec, random_tensors(spec, 1));
  EXPECT_EQ(parse({"info", folder_.path("")}), kExitOk) << parse_error_;
  unsetenv("RUNNEL_SERVER");
  unsetenv("RUNNEL_MODEL");
}

TEST_F(CommandsTest, ATinyTemperatureIsGreedy) {
  const auto generate = [this](const char* temperature) {
    return parse({"generate", "--server", server_.address(), "--model", "text", "--max-values", "1",
                  "--temperature", temperature});
  };
  for (const char* const tiny : {"0", "1e-8", "0.0009", "1e-400"}) {
    ASSERT_EQ(generate(tiny), kExitOk) << parse_error_;
    EXPECT_TRUE(server_.last_request().sampling().greedy()) << tiny;
    EXPECT_FALSE(server_.last_request().sampling().has_temperature());
  }
  ASSERT_EQ(generate("0.001"), kExitOk) << parse_error_;
  EXPECT_EQ(server_.last_request().sampling().temperature(), 0.001F);
  for (const char* const wrong : {"", "-1e-8", "nan", "100.1", "warm"}) {
    EXPECT_NE(generate(wrong), kExitOk) << wrong;
  }
  EXPECT_THAT(parse_error_, HasSubstr("expected a number from 0"));
}

TEST_F(CommandsTest, OutputThatCannotBeWrittenIsAFailure) {
  std::ofstream full("/dev/full");
  std::ostringstream err;
  Console console{.out = full, .err = err};
  InfoOptions options = of_server();
  EXPECT_EQ(delivered(console, run_info(options, console)), kExitFailed);
  EXPECT_THAT(err.str(), HasSubstr("standard output could not be written"));
}

TEST(HealthContract, IsCompiledIntoTheClientToo) {
  const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      "grpc.health.v1.Health");
  ASSERT_NE(service, nullptr);
  EXPECT_NE(service->FindMethodByName("Check"), nullptr);
  EXPECT_NE(service->FindMethodByName("Watch"), nullptr);
}

}  // namespace
}  // namespace runnel
