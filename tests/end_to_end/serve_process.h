// `runnel serve` as a separate process, and what the system reports about it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runnel/v1/inference.grpc.pb.h"
#include "runnel/v1/models.grpc.pb.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {

// Until an event counts as one that never comes: a machine may be busy with other things.
inline constexpr std::chrono::seconds kPatience{120};

// A child process. The destructor kills it if it still runs.
class ChildProcess {
 public:
  // Starts the command `words`. Its output goes to `log`.
  ChildProcess(const std::vector<std::string>& words, const std::string& log);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool runs();
  void send(int signal) const;
  // Waits for its end. Returns the exit code, 128 + signal, or -1 if it does not end.
  int wait();

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// Serves an endless model of eleven symbols. Its random weights are always the same.
class ServeProcess {
 public:
  explicit ServeProcess(const std::vector<std::string>& flags);

  const std::string& address() const { return address_; }
  int port() const;
  bool runs() { return process_->runs(); }
  // Sends SIGTERM. Returns the exit code.
  int stop();

  int64_t resident_bytes() const;
  int open_files() const;
  int64_t sessions() const;
  int64_t sessions_free() const;
  // The number of times that its log contains these words.
  int64_t times_logged(const std::string& words) const;

  // A new connection. `window`: the bytes that may be in flight to a call that does not read, or 0
  // for gRPC's own choice.
  std::shared_ptr<grpc::Channel> connect(int window = 0) const;

  // The path of a file in this process's own temporary directory.
  std::string file(const std::string& name) const { return directory_.path() + "/" + name; }

 private:
  v1::ModelInfo info() const;

  TempDir directory_;
  std::unique_ptr<ChildProcess> process_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
};

// The program under test.
std::string runnel_program();

// Waits until `holds` returns true. False if it never does.
bool comes_to_hold(const std::function<bool()>& holds);

}  // namespace runnel
