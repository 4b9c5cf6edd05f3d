#include "tests/end_to_end/serve_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "base/check.h"

namespace runnel {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string runnel_program() { return RUNNEL_PROGRAM; }

bool comes_to_hold(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  // With one arena, freed memory is reused at once, so growth means more memory in use.
  setenv("MALLOC_ARENA_MAX", "1", 1);
  const int failed = posix_spawn(&pid_, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  check(failed == 0, "the program can be started");
}

ChildProcess::~ChildProcess() {
  if (!runs()) return;
  send(SIGKILL);
  wait();
}

bool ChildProcess::runs() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}

void ChildProcess::send(int signal) const { kill(pid_, signal); }

int ChildProcess::wait() {
  if (!comes_to_hold([this] { return !runs(); })) return -1;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

ServeProcess::ServeProcess(const std::vector<std::string>& flags) {
  const Spec spec = small_symbol_spec();
  write_bundle(file("bundle"), spec, random_tensors(spec, 11));
  std::vector<std::string> words = {runnel_program(), "serve", file("bundle"), "--address",
                                    "127.0.0.1:0"};
  words.insert(words.end(), flags.begin(), flags.end());
  process_ = std::make_unique<ChildProcess>(words, file("log"));
  const bool is_ready = comes_to_hold([&] {
    const std::string log = text_of(file("log"));
    std::smatch found;
    if (!std::regex_search(log, found, std::regex(R"(\bready\b.*address=(\S+))"))) return false;
    address_ = found[1];
    return true;
  });
  check(is_ready, "the server starts");
  channel_ = connect();
}

int ServeProcess::port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }

int ServeProcess::stop() {
  process_->send(SIGTERM);
  return process_->wait();
}

int64_t ServeProcess::resident_bytes() const {
  std::istringstream pages(text_of("/proc/" + std::to_string(process_->pid()) + "/statm"));
  int64_t total = 0;
  int64_t resident = 0;
  pages >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int ServeProcess::open_files() const {
  const std::string path = "/proc/" + std::to_string(process_->pid()) + "/fd";
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count;
}

v1::ModelInfo ServeProcess::info() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  context.set_wait_for_ready(true);  // a flooded server may refuse connections for a moment
  v1::ListModelsResponse models;
  const auto status = v1::Models::NewStub(channel_)->ListModels(&context, {}, &models);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return models.models_size() == 1 ? models.models(0) : v1::ModelInfo();
}

int64_t ServeProcess::sessions() const { return info().sessions(); }
int64_t ServeProcess::sessions_free() const { return info().sessions_free(); }

int64_t ServeProcess::times_logged(const std::string& words) const {
  const std::string log = text_of(file("log"));
  int64_t count = 0;
  for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++count;
  return count;
}

std::shared_ptr<grpc::Channel> ServeProcess::connect(int window) const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (window > 0) {
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the probe would enlarge the window
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window);
  }
  return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace runnel
