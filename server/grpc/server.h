// The gRPC server: the services of the wire contract, health and reflection.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "server/event_log.h"
#include "server/listener.h"
#include "server/served_models.h"
#include "server/server_certificate.h"
#include "server/server_state.h"

namespace runnel {

struct ServerOptions {
  std::string version = {};  // of the program
  std::string address = "127.0.0.1:0";
  std::string keys;              // path of the file of keys; empty: nobody is asked for one
  bool insecure_public = false;  // may listen beyond this machine although anyone could call
  TlsFiles tls;
  std::string seal_key;  // path of a key for state files; empty: none
  int64_t message_bytes = limits::kMessageBytes.default_value;
  int64_t streams_per_connection = limits::kStreamsPerConnection.default_value;
  int64_t connections = limits::kConnections.default_value;
  int64_t connection_age_ms = limits::kConnectionAgeMs.default_value;
  int64_t network_bytes = limits::kNetworkBytes.default_value;
  int64_t call_bytes = limits::kCallBytes.default_value;
  Delivery delivery;
  int64_t text_bytes = limits::kTextBytes.default_value;  // of one prompt or chunk to score
  Duration stall_timeout = std::chrono::milliseconds(limits::kStallTimeoutMs.default_value);
  bool access_log = true;  // a line for each call
};

// start(), then models().add() for each model, then ready(); drain() at the end. One thread does
// that.
class Server {
 public:
  // `log` outlives the server.
  Server(ServerOptions options, const EventLog& log);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Drains without grace.
  ~Server();

  // Listens, and answers UNAVAILABLE until ready(). FAILED_PRECONDITION when the address cannot be
  // had; INVALID_ARGUMENT when it lies open to others against the options; errors of
  // read_key_file() and read_seal_key(); INVALID_ARGUMENT or NOT_FOUND when a file for TLS cannot
  // be used.
  Status start();
  // Where clients find it: the address with the port that the system chose where it was 0.
  const std::string& address() const { return listener_->address(); }

  // The state that all calls share, for other front ends. Their calls must end before this server
  // does.
  ServerState& state() { return state_; }

  // Models may be added, replaced and retired at any time.
  ServedModels& models() { return state_.models; }
  // What Admin.Reload asks. Before ready().
  void set_reload(AskReload ask) { state_.reload = std::move(ask); }
  // From here it serves, and health says so.
  void ready();
  // What health says, for any thread: true from ready() until drain().
  bool serving() const { return serving_.load(std::memory_order_acquire); }

  // Refuses new calls with UNAVAILABLE and turns health to NOT_SERVING at once. Streams that run
  // get `grace` to end; then they are ended with UNAVAILABLE. Returns when all is over, at most a
  // few seconds after `grace`. Calls after the first do nothing.
  void drain(Duration grace);

  // To be called about once a second: ends Score calls whose client has sent nothing for the stall
  // timeout, and cuts off calls whose reader has taken nothing for twice as long, and so has missed
  // the ABORTED that ended them. Reads keys and certificates again where their files have changed,
  // and ends the calls of keys that are gone.
  void tend();

  // What the device of a model has failed with, for good; OK while none has.
  Status failure() const;

  // What has been counted, as Prometheus reads it; from any thread, once start() has returned.
  std::string metrics_text() const;

  // Calls that run.
  int active_streams() const { return state_.calls.count(); }

  // A channel without a socket.
  std::shared_ptr<grpc::Channel> in_process_channel();

 private:
  Status load_credentials();
  void set_serving(bool serving);
  bool wait_until_none(Duration at_most);

  const ServerOptions options_;
  const EventLog& log_;
  std::atomic<bool> serving_{false};
  ServerState state_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<ServerCertificate> certificate_;  // null: no TLS
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> server_;  // its calls use all of the above
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Listener> listener_;  // first to go
};

}  // namespace runnel
