// The program as a process: its log, its reaction to signals, and its exit codes.

#include "server/process/serve.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/limits.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/server/http/http_client.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// `runnel` with arguments. Its stderr goes to a file.
class Process {
 public:
  Process(const TempDir& directory, std::vector<std::string> words)
      : log_path_(directory.path() + "/log") {
    words.insert(words.begin(), RUNNEL_PROGRAM);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int log = open(log_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(log, STDERR_FILENO);
      dup2(log, STDOUT_FILENO);
      execv(RUNNEL_PROGRAM, arguments.data());
      _exit(99);
    }
    close(log);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    wait();
  }

  std::string log() const {
    std::ifstream in(log_path_);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // The address in the line `ready`, or "" if the line does not come.
  std::string wait_ready() const {
    std::string address;
    const bool ready = eventually([&] {
      std::istringstream lines(log());
      for (std::string line; std::getline(lines, line);) {
        const size_t at = line.find(" address=");
        if (line.find(" info ready ") == std::string::npos || at == std::string::npos) continue;
        address = line.substr(at + 9);
        return !lines.eof();  // only a whole line counts
      }
      return false;
    });
    EXPECT_TRUE(ready) << log();
    return ready ? address : "";
  }
  void signal(int number) const { kill(pid_, number); }
  // The exit code, or 256 + the number of the signal that killed it.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  }

 private:
  std::string log_path_;
  pid_t pid_ = 0;
};

// A directory with a bundle.
struct Workplace {
  Workplace() : bundle(directory.path() + "/bundle") {
    write_bundle(bundle, small_symbol_spec(), random_tensors(small_symbol_spec(), 1));
  }
  TempDir directory;
  std::string bundle;
};

// Makes a model that fails after `steps` steps.
ModelFactory failing_after(int steps) {
  return [steps](const Bundle& bundle, const ServerConfig&, ModelLimits limits) {
    limits.slots = 4;
    auto model = std::make_unique<FakeModel>(bundle.spec, limits);
    model->fails = [left = steps]() mutable { return left-- <= 0; };
    return Result<LoadedModel>(LoadedModel{nullptr, std::move(model)});
  };
}

TEST(Serve, ADeviceFailureChangesHealthAndEndsTheProcessWithACode) {
  const Workplace place;
  ServerConfig config;
  config.address = "unix:" + place.directory.path() + "/socket";
  config.models = {{.name = "failing", .path = place.bundle}};
  std::ostringstream text;
  const EventLog log("info", false, text);
  int code = -1;
  std::thread process([&] { code = serve(config, {}, failing_after(200), log, "test"); });

  const auto channel = grpc::CreateChannel(config.address, grpc::InsecureChannelCredentials());
  const auto health = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext watching;
  watching.set_wait_for_ready(true);
  const auto watch = health->Watch(&watching, {});
  grpc::health::v1::HealthCheckResponse state;
  do {
    ASSERT_TRUE(watch->Read(&state));
  } while (state.status() != grpc::health::v1::HealthCheckResponse::SERVING);

  const auto inference = v1::Inference::NewStub(channel);
  grpc::ClientContext context;
  const auto call = inference->Generate(&context, generate_request({1}, 1000));
  v1::GenerateResponse response;
  while (call->Read(&response)) {
  }
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("has failed: the fake device failed"));
  EXPECT_TRUE(watch->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  watching.TryCancel();
  watch->Finish();
  process.join();
  EXPECT_EQ(code, 3);
  EXPECT_THAT(text.str(), HasSubstr("error failed code=UNAVAILABLE"));
  EXPECT_THAT(text.str(), HasSubstr("info exit code=3"));
}

// The status for `path` on the metrics port, whose address is in `log`.
int status_of(const std::string& log, const std::string& path) {
  const std::string mark = "info metrics address=";
  const size_t at = log.find(mark);
  if (at == std::string::npos) return 0;
  const size_t begin = at + mark.size();
  HttpClient client(log.substr(begin, log.find('\n', begin) - begin));
  client.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
  return client.response().status;
}

TEST(Serve, IsAliveButNotReadyWhileItLoads) {
  const Workplace place;
  ServerConfig config;
  config.address = "unix:" + place.directory.path() + "/socket";
  config.metrics_address = "127.0.0.1:0";
  config.models = {{.name = "fake", .path = place.bundle}};
  std::ostringstream text;
  const EventLog log("info", false, text);
  int ready = 0;
  int live = 0;
  const ModelFactory loading = [&](const Bundle&, const ServerConfig&, const ModelLimits&) {
    ready = status_of(text.str(), "/readyz");
    live = status_of(text.str(), "/healthz");
    return Result<LoadedModel>(Status(Code::kFailedPrecondition, "it does not load"));
  };
  EXPECT_EQ(serve(config, {}, loading, log, "test"), 1);
  EXPECT_EQ(ready, 503);
  EXPECT_EQ(live, 200);
}

TEST(Serve, IsAliveButNotReadyWhileItDrains) {
  const Workplace place;
  Process process(place.directory, {"serve", place.bundle, "--address", "127.0.0.1:0",
                                    "--metrics-address", "127.0.0.1:0", "--grace-ms", "3600000"});
  const std::string address = process.wait_ready();
  ASSERT_FALSE(address.empty());
  EXPECT_EQ(status_of(process.log(), "/readyz"), 200);
  EXPECT_EQ(status_of(process.log(), "/metrics"), 200);
  const auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Score(&context);
  ASSERT_TRUE(stream->Write(score_request({1, 2})));
  v1::ScoreResponse response;
  ASSERT_TRUE(stream->Read(&response));
  process.signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return status_of(process.log(), "/readyz") == 503; }));
  EXPECT_EQ(status_of(process.log(), "/healthz"), 200);
  EXPECT_EQ(status_of(process.log(), "/metrics"), 200);
  stream->WritesDone();
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(process.wait(), 0);
}

TEST(Serve, WeightsThatOverflowAreRefusedBeforeAnybodyIsServed) {
  const Workplace place;
  TensorMap tensors = random_tensors(small_symbol_spec(), 1);
  for (float& weight : tensors["predictor.weight"]) weight *= 1e36F;
  const std::string bundle = place.directory.path() + "/overflows";
  write_bundle(bundle, small_symbol_spec(), tensors);
  Process process(place.directory, {"serve", bundle, "--address", "127.0.0.1:0"});
  EXPECT_EQ(process.wait(), 1);
  EXPECT_THAT(process.log(),
              HasSubstr(bundle + ": the forward pass does not work with these weights"));
}

TEST(Serve, LogsItsCapacityServesAndDrainsOnSigterm) {
  const Workplace place;
  Process process(place.directory,
                  {"serve", place.bundle, "--address", "127.0.0.1:0", "--sessions", "5"});
  const std::string address = process.wait_ready();
  ASSERT_FALSE(address.empty());
  const auto stub =
      v1::Models::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub->ListModels(&context, {}, &models).ok());
  EXPECT_EQ(models.models(0).name(), "small-symbols");
  EXPECT_EQ(models.models(0).sessions_free(), 5);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0);
  const std::string log = process.log();
  const int64_t bytes = small_symbol_spec().state_bytes() + limits::kRecentValues.default_value * 4;
  EXPECT_THAT(log, HasSubstr("info machine cores="));
  EXPECT_THAT(log, HasSubstr("info start version="));
  EXPECT_THAT(log, HasSubstr("state_bytes=" + std::to_string(bytes) +
                             " sessions=5 states=0 states_bytes=" + std::to_string(5 * bytes) +
                             " rewind_bytes=0 numerics=cpu/"));
  EXPECT_THAT(log, HasSubstr("info memory most="));
  EXPECT_THAT(log, HasSubstr("info stop signal=15"));
  EXPECT_THAT(log, HasSubstr("info drain streams="));
  EXPECT_THAT(log, HasSubstr("info exit code=0"));
}

// Each of the 5 sessions has 4 + 1 snapshots with a number each, and keeps 8 + 2 + 1 values. A
// rewind needs 2 + 1 more.
TEST(Serve, CountsTheMemoryForRewinds) {
  const Workplace place;
  Process process(place.directory, {"serve", place.bundle, "--address", "127.0.0.1:0", "--sessions",
                                    "5", "--rewind", "8,2"});
  ASSERT_FALSE(process.wait_ready().empty());
  const int64_t bytes = small_symbol_spec().state_bytes() + limits::kRecentValues.default_value * 4;
  EXPECT_THAT(process.log(),
              HasSubstr(" sessions=5 states=0 states_bytes=" + std::to_string(5 * bytes) +
                        " rewind_bytes=" + std::to_string(5 * (5 * (bytes + 8) + (11 + 3) * 4))));
}

TEST(Serve, LogsJsonOnRequest) {
  const Workplace place;
  Process process(place.directory, {"serve", "other=" + place.bundle, "--address", "127.0.0.1:0",
                                    "--log-json", "--isa", "portable", "--threads", "1"});
  ASSERT_TRUE(eventually([&] { return process.log().find("\"ready\"") != std::string::npos; }))
      << process.log();
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 0);
  std::istringstream lines(process.log());
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    events.push_back(event["event"]);
    if (events.back() != "model") continue;
    EXPECT_EQ(event["model"], "other");
    EXPECT_THAT(event["numerics"].get<std::string>(), HasSubstr("portable"));
    EXPECT_EQ(event["instructions"], "portable, as asked for");
  }
  EXPECT_THAT(events,
              ::testing::ElementsAre("machine", "start", "load", "loaded", "model", "memory",
                                     "ready", "stop", "drain", "drained", "exit"));
}

TEST(Serve, ASecondSignalEndsItAtOnce) {
  const Workplace place;
  Process process(place.directory,
                  {"serve", place.bundle, "--address", "127.0.0.1:0", "--grace-ms", "3600000"});
  const std::string address = process.wait_ready();
  ASSERT_FALSE(address.empty());
  // A call that outlasts the grace period.
  const auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Score(&context);
  ASSERT_TRUE(stream->Write(score_request({1, 2})));
  v1::ScoreResponse response;
  ASSERT_TRUE(stream->Read(&response));
  process.signal(SIGTERM);
  ASSERT_TRUE(
      eventually([&] { return process.log().find("drain streams=1") != std::string::npos; }));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  (void)stream->Finish();
}

// Whether the health service at `address` answers SERVING.
bool is_healthy(const std::string& address) {
  const auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_TRUE(health->Check(&context, {}, &response).ok());
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

// Makes a short call at `address`. Returns its status.
grpc::Status generate_at(const std::string& address) {
  const auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, generate_request({1}, 3));
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  return reader->Finish();
}

TEST(Serve, ALameDuckIsNotReadyAndServesUntilASecondSignal) {
  const Workplace place;
  Process process(place.directory,
                  {"serve", place.bundle, "--address", "127.0.0.1:0", "--metrics-address",
                   "127.0.0.1:0", "--lame-duck-ms", "3600000"});
  const std::string address = process.wait_ready();
  ASSERT_FALSE(address.empty());
  EXPECT_TRUE(is_healthy(address));
  process.signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return status_of(process.log(), "/readyz") == 503; }));
  EXPECT_EQ(status_of(process.log(), "/healthz"), 200);
  EXPECT_FALSE(is_healthy(address));
  EXPECT_TRUE(generate_at(address).ok());
  EXPECT_THAT(process.log(), HasSubstr("info lame_duck ms=3600000"));
  EXPECT_THAT(process.log(), Not(HasSubstr("info drain ")));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0) << process.log();
  EXPECT_THAT(process.log(), HasSubstr("info drain "));
}

TEST(Serve, ALameDuckDrainsAfterItsTimeAndThenASignalEndsIt) {
  const Workplace place;
  Process process(place.directory, {"serve", place.bundle, "--address", "127.0.0.1:0",
                                    "--lame-duck-ms", "20", "--grace-ms", "3600000"});
  const std::string address = process.wait_ready();
  ASSERT_FALSE(address.empty());
  // A call that outlasts the grace period.
  const auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Score(&context);
  ASSERT_TRUE(stream->Write(score_request({1, 2})));
  v1::ScoreResponse response;
  ASSERT_TRUE(stream->Read(&response));
  process.signal(SIGTERM);
  ASSERT_TRUE(
      eventually([&] { return process.log().find("drain streams=1") != std::string::npos; }));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 143);
  (void)stream->Finish();
}

// A server with a config file, which it reads again on SIGHUP.
class ServedByFile {
 public:
  ServedByFile() {
    config(R"([{"name": "old", "path": "bundle"}])");
    process_ = std::make_unique<Process>(
        place_.directory, std::vector<std::string>{"serve", "--config", file_, "--address",
                                                   "127.0.0.1:0", "--sessions", "8"});
    const std::string address = process_->wait_ready();
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    stub_ = v1::Inference::NewStub(channel_);
  }

  // Writes the config file with these models and other settings.
  void config(const std::string& models, const std::string& rest = "") const {
    write_file(file_, "{\"models\": " + models + rest + "}");
  }
  // Sends SIGHUP and waits until the log contains `expected`.
  void reload(const std::string& expected) {
    process_->signal(SIGHUP);
    EXPECT_TRUE(eventually([&] { return process_->log().find(expected) != std::string::npos; }))
        << process_->log();
  }
  // The status of a call on a model.
  grpc::Status call(const std::string& model) const {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request(model, 3));
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
  static v1::GenerateRequest request(const std::string& model, int64_t values) {
    v1::GenerateRequest request = generate_request({1}, values);
    request.set_model(model);
    return request;
  }

  v1::Inference::Stub& stub() { return *stub_; }
  Process& process() { return *process_; }
  std::string log() const { return process_->log(); }
  const std::string& bundle() const { return place_.bundle; }

 private:
  const Workplace place_;
  const std::string file_ = place_.directory.path() + "/serve.json";
  std::unique_ptr<Process> process_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST(ServeReload, ModelsComeAndGoWhileAStreamRuns) {
  ServedByFile served;
  grpc::ClientContext context;
  v1::GenerateRequest request = ServedByFile::request("old", 1 << 20);
  request.mutable_delivery()->set_max_values(1);
  const auto reader = served.stub().Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  served.config(R"([{"name": "new", "path": "bundle", "aliases": ["latest"]}])");
  served.reload("info reload added=new replaced=\"\" retired=old kept=\"\" refused=0");
  EXPECT_TRUE(served.call("new").ok());
  EXPECT_TRUE(served.call("latest").ok());
  EXPECT_EQ(served.call("old").error_code(), grpc::StatusCode::NOT_FOUND);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(reader->Read(&response)) << "the stream goes on";
  context.TryCancel();
  (void)reader->Finish();
  served.process().signal(SIGTERM);
  EXPECT_EQ(served.process().wait(), 0);
}

TEST(ServeReload, ABadConfigurationLeavesTheServedModels) {
  ServedByFile served;
  served.config("[{]");
  served.reload("what is served stays as it was");
  served.config(R"([{"name": "new", "path": "nowhere"}])");
  served.reload("warn refused model=new");
  EXPECT_TRUE(served.call("old").ok());
  EXPECT_EQ(served.call("new").error_code(), grpc::StatusCode::NOT_FOUND);
  served.config(R"([{"name": "old", "path": "bundle"}])",
                R"(, "limits": {"batch_rows": 7}, "threads": 1)");
  served.reload("kept=old refused=0");
  EXPECT_THAT(served.log(), HasSubstr("warn restart settings=\"threads,limits.batch_rows\""));
  // Replaces the weights under the same name.
  write_bundle(served.bundle(), small_symbol_spec(), random_tensors(small_symbol_spec(), 2));
  served.reload("replaced=old");
  EXPECT_TRUE(served.call("old").ok());
}

TEST(Serve, SighupStopsAServerWithoutAConfigFile) {
  const Workplace place;
  Process process(place.directory, {"serve", place.bundle, "--address", "127.0.0.1:0"});
  ASSERT_FALSE(process.wait_ready().empty());
  process.signal(SIGHUP);
  EXPECT_EQ(process.wait(), 0);
  EXPECT_THAT(process.log(), HasSubstr("stop signal=1"));
}

TEST(Serve, AMissingDeviceIsReportedInOneSentence) {
  if (make_cuda_backend().ok()) GTEST_SKIP() << "this machine has a GPU";
  const Workplace place;
  Process process(place.directory,
                  {"serve", place.bundle, "--address", "127.0.0.1:0", "--backend", "cuda"});
  EXPECT_EQ(process.wait(), 1);
  EXPECT_THAT(process.log(), HasSubstr("code=FAILED_PRECONDITION"));
  EXPECT_THAT(process.log(), HasSubstr("use backend cpu"));
}

TEST(Serve, GpuOnlyFlagsAreRefusedOnTheCpu) {
  if (make_cuda_backend().ok()) GTEST_SKIP() << "this machine has a GPU";
  const Workplace place;
  Process process(place.directory,
                  {"serve", place.bundle, "--address", "127.0.0.1:0", "--state", "replay"});
  EXPECT_EQ(process.wait(), 1);
  EXPECT_THAT(process.log(), HasSubstr("state plain"));
  EXPECT_THAT(process.log(), HasSubstr("--state is called --gpu-state now"));
}

TEST(Serve, ReportsFaultsAtTheStartWithTheirExitCodes) {
  const Workplace place;
  const auto expect = [&](const std::vector<std::string>& words, int code,
                          const std::string& message) {
    Process process(place.directory, words);
    EXPECT_EQ(process.wait(), code) << process.log();
    EXPECT_THAT(process.log(), HasSubstr(message));
  };
  expect({"serve", "--sessions", "-1", place.bundle}, 2, "--sessions is -1");
  expect({"serve", "--rewind", "9", place.bundle}, 2, "rewind is '9'; it must be two numbers");
  expect({"serve", "--rewind", "1048576,1", "--sessions", "1048576", place.bundle, "--address",
          "127.0.0.1:0"},
         1, "lower one of them");
  expect({"serve"}, 2, "there is nothing to serve");
  expect({"serve", "--what"}, 2, "--what");
  expect({}, 2, "subcommand is required");
  expect({"serve", place.directory.path() + "/none", "--address", "127.0.0.1:0"}, 1,
         "code=NOT_FOUND");
  expect({"serve", "--address", "127.0.0.1:0", place.bundle, place.bundle}, 2,
         "two models are named 'small-symbols'");
  expect({"--version"}, 0, "runnel ");
  expect({"serve", "--help"}, 0, "--streams-per-connection");
  expect({"serve", place.bundle, "--address", "127.0.0.1:0", "--metrics-address", "0.0.0.0:0"}, 2,
         "which other machines reach, and anybody could read");
  expect({"serve", place.bundle, "--address", "127.0.0.1:0", "--metrics-address", "192.0.2.1:0"}, 1,
         "choose another one with --metrics-address");
  expect({"serve", place.bundle, "--address", "127.0.0.1:0", "--http-address", "0.0.0.0:0"}, 2,
         "prompts and keys would cross the network in the clear");
  const std::string seal = place.directory.path() + "/seal.key";
  write_file(seal, std::string(32, 's'));
  std::filesystem::permissions(seal, std::filesystem::perms::owner_read);
  expect({"serve", place.bundle, "--address", "127.0.0.1:0", "--storage", "redis://127.0.0.1:1/0",
          "--seal-keys", seal},
         1, "cannot be reached");
  const TestServer taken;
  expect({"serve", place.bundle, "--address", taken.server.address()}, 1, "cannot listen on");
}

TEST(Serve, WarnsIfOtherMachinesCanConnectButNoHostIsConfigured) {
  const Workplace place;
  const std::vector<std::string> words = {
      "serve",          place.bundle, "--address",        "127.0.0.1:0",
      "--http-address", "0.0.0.0:0",  "--insecure-public"};
  const Process silent(place.directory, words);
  silent.wait_ready();
  EXPECT_THAT(silent.log(), HasSubstr(" warn http_hosts message="));
}

TEST(Serve, TheLastLineOfTheLogNamesTheCause) {
  const Workplace place;
  Process process(place.directory,
                  {"serve", place.directory.path() + "/none", "--address", "127.0.0.1:0"});
  EXPECT_EQ(process.wait(), 1);
  const std::string log = process.log();
  const std::string last = log.substr(log.rfind('\n', log.size() - 2) + 1);
  EXPECT_THAT(last, HasSubstr("error failed code=NOT_FOUND"));
}

}  // namespace
}  // namespace runnel
