#include "server/process/server.h"

#include "server/host/metrics_text.h"

namespace runnel {

Status Server::start() {
  if (Status s = host_.open(); !s.ok()) return s;
  return grpc_.start();
}

void Server::ready() {
  host_.ready();
  grpc_.ready();
}

void Server::unready() {
  grpc_.unready();
  host_.unready();
}

void Server::drain(Duration grace) {
  if (!grpc_.is_open()) return;
  const ServerContext& context = host_.context();
  context.log.info("drain", {{"streams", int64_t{context.calls.count()}},
                             {"grace_ms", int64_t{grace / std::chrono::milliseconds(1)}}});
  grpc_.refuse();
  host_.refuse();
  host_.end_calls(grace, [this] { tend(); });
  grpc_.stop();
  context.log.info("drained", {});
}

void Server::tend() {
  host_.tend();
  grpc_.tend();
}

std::string Server::metrics_text() const {
  return runnel::metrics_text(host_.context(), grpc_.connections());
}

}  // namespace runnel
