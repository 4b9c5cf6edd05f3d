// A server: the host and its gRPC door, which start and drain together. Doors that use HTTP are
// opened separately (http_port.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "server/grpc/grpc_door.h"
#include "server/host/host.h"

namespace runnel {

struct ServerOptions {
  HostOptions host;
  GrpcOptions grpc;
};

// One thread calls start(), then models().add() for each model, then ready(), then tend() about
// once a second, possibly unready(), and then drain().
class Server {
 public:
  // `log` and `clock` must outlive the server.
  Server(const ServerOptions& options, const EventLog& log, const Clock& clock = real_clock())
      : host_(options.host, log, clock), grpc_(options.grpc, host_.context()) {}
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  // Drains without grace.
  ~Server() { drain(Duration(0)); }

  // Listens, and answers UNAVAILABLE until ready(). Errors of Host::open() and GrpcDoor::start().
  Status start();
  // As GrpcDoor::address().
  const std::string& address() const { return grpc_.address(); }

  // As Host::context(), for other doors. Their calls must end before this server does.
  ServerContext& context() { return host_.context(); }

  // Models may be added, replaced and retired at any time.
  ServedModels& models() { return host_.context().models; }
  // The handler of Admin.Reload. Call before ready().
  void set_reload(AskReload ask) { host_.context().reload = std::move(ask); }
  // Starts to serve, and sets health to SERVING.
  void ready();
  // Sets health and readiness to not serving, so that proxies send calls elsewhere. Calls are
  // served as before.
  void unready();
  // As Host::serving().
  bool serving() const { return host_.serving(); }

  // Refuses new calls with UNAVAILABLE, and sets health to NOT_SERVING, at once. Streams that have
  // not ended after `grace` end with UNAVAILABLE. Returns when all have ended: soon after `grace`,
  // or up to 12 seconds after it if the store is slow. Only the first call of drain() has an
  // effect.
  void drain(Duration grace);

  // To be called about once a second: Host::tend() and GrpcDoor::tend().
  void tend();

  // As GrpcDoor::allow_memory().
  void allow_memory(const MemoryAllowance& allowance) { grpc_.allow_memory(allowance); }

  // As Host::failure().
  Status failure() const { return host_.failure(); }

  // The metrics in Prometheus' text format. Any thread may call this after start() has returned.
  std::string metrics_text() const;

  // The number of running calls.
  int active_streams() const { return host_.context().calls.count(); }

  // As GrpcDoor::in_process_channel().
  std::shared_ptr<grpc::Channel> in_process_channel() { return grpc_.in_process_channel(); }

 private:
  Host host_;
  GrpcDoor grpc_;  // its calls use the host
};

}  // namespace runnel
