// A test's own redis-server, on a unix socket in a temporary folder. Debian's package redis-tools
// also has the program, under the name redis-check-rdb, and starts no service.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "storage/redis_client.h"
#include "tests/base/eventually.h"
#include "tests/base/test_files.h"

namespace runnel {

class RedisServer {
 public:
  // `flags` are added to the command line.
  explicit RedisServer(std::vector<std::string> flags = {}) : flags_(std::move(flags)) { start(); }
  ~RedisServer() { stop(SIGKILL); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  static constexpr const char* kMissing =
      "there is no redis-server; scripts/setup test installs it";
  static bool is_installed() {
    return std::system("(command -v redis-server || command -v redis-check-rdb) >/dev/null") == 0;
  }

  StoreUrl url() const { return {.kind = StoreKind::kRedis, .path = folder_.path("socket")}; }

  // Restores the data that an earlier Redis wrote to its file. Redis ends when the thread that
  // started it ends.
  void start() {
    std::vector<std::string> words = {
        "redis-server",   "--port", "0", "--unixsocket", url().path, "--dir",
        folder_.path(""), "--save", "",  "--appendonly", "yes",      "--loglevel",
        "warning"};
    words.insert(words.end(), flags_.begin(), flags_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
      execvp("redis-server", arguments.data());
      execvp("redis-check-rdb", arguments.data());  // the same program under another name
      _exit(127);
    }
    bool has_ended = false;
    is_up_ = eventually([&] {
      has_ended = waitpid(process_, nullptr, WNOHANG) != 0;
      return has_ended || answers();
    });
    if (has_ended) process_ = -1;
  }

  void stop(int signal) {
    if (process_ <= 0) return;
    kill(process_, signal);
    waitpid(std::exchange(process_, -1), nullptr, 0);
  }
  void send_signal(int signal) const { kill(process_, signal); }
  bool is_up() const { return is_up_ && process_ > 0; }

  // Sends a command of the test's own.
  Result<RespValue> ask(const std::vector<std::string_view>& words, RespKind kind) const {
    const RedisOptions options = {.url = url(), .timeout_ms = 60000};
    const auto client = RedisClient::open(options);
    if (!client.ok()) return client.status();
    return (*client)->ask(words, kind);
  }

 private:
  bool answers() const {
    const auto answer = ask({"PING"}, RespKind::kText);
    return answer.ok() || answer.status().message().find("NOAUTH") != std::string::npos;
  }

  const TestFolder folder_;
  const std::vector<std::string> flags_;
  pid_t process_ = -1;
  bool is_up_ = false;
};

// A port on which nobody listens at the moment.
inline int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool is_bound = bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                        getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(probe);
  return is_bound ? ntohs(address.sin_port) : 0;
}

}  // namespace runnel
