#include "server/process/serve.h"

#include <unistd.h>

#include <utility>

#include "server/grpc/server.h"
#include "server/process/memory_bound.h"
#include "server/process/stop_signal.h"

namespace runnel {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDevice = 3;
constexpr auto kTendInterval = std::chrono::seconds(1);

ServerOptions server_options(const ServerConfig& config) {
  return {.address = config.address,
          .keys = config.keys,
          .insecure_public = config.insecure_public,
          .tls = {.certificate = config.tls_cert,
                  .key = config.tls_key,
                  .client_authorities = config.tls_client_ca},
          .message_bytes = config.limit(limits::kMessageBytes),
          .streams_per_connection = config.limit(limits::kStreamsPerConnection),
          .connections = config.limit(limits::kConnections),
          .connection_age_ms = config.limit(limits::kConnectionAgeMs),
          .network_bytes = config.limit(limits::kNetworkBytes),
          .call_bytes = config.limit(limits::kCallBytes),
          .delivery = {.max_values = static_cast<int>(config.limit(limits::kDeliveryValues)),
                       .max_delay = milliseconds_of(config, limits::kDeliveryDelayMs)},
          .text_bytes = config.limit(limits::kTextBytes),
          .stall_timeout = milliseconds_of(config, limits::kStallTimeoutMs)};
}

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

void log_capacity(const ServedModels::ByName& models, const EventLog& log) {
  for (const auto& [name, model] : models) {
    const Engine& engine = *model->engine;
    const int64_t sessions = engine.stats().sessions;
    log.info("model", {{"model", name},
                       {"parameters", engine.spec().parameters()},
                       {"state_bytes", engine.state_bytes()},
                       {"sessions", sessions},
                       {"states_bytes", engine.state_bytes() * sessions},
                       {"numerics", engine.numerics()},
                       {"weights", model->weight_digest}});
  }
}

int64_t sessions_of(const ServedModels::ByName& models) {
  int64_t sessions = 0;
  for (const auto& [name, model] : models) sessions += model->engine->stats().sessions;
  return sessions;
}

void log_memory(const MemoryBound& bound, const EventLog& log) {
  log.info("memory", {{"most", bound.total()},
                      {"start", bound.start},
                      {"connections", bound.connections},
                      {"network", bound.network},
                      {"calls", bound.calls},
                      {"records", bound.records}});
}

int failed(const EventLog& log, int code, const Status& status) {
  log.error("failed",
            {{"code", std::string(code_name(status.code()))}, {"message", status.message()}});
  return code;
}

// Serves until a signal comes or a device fails, then drains. Gives the exit code.
int serve_until_the_end(Server& server, const ServerConfig& config, const EventLog& log,
                        StopSignal& stop) {
  int signal = 0;
  Status failure;
  while (signal == 0 && failure.ok()) {
    signal = stop.wait(kTendInterval);
    server.tend();
    failure = server.failure();
  }
  if (signal != 0) log.info("stop", {{"signal", int64_t{signal}}});
  if (!failure.ok()) failed(log, kExitDevice, failure);
  server.drain(milliseconds_of(config, limits::kGraceMs));
  const int code = failure.ok() ? 0 : kExitDevice;
  log.info("exit", {{"code", int64_t{code}}});
  return code;
}

}  // namespace

int serve(const ServerConfig& config, const ModelFactory& make_model, const EventLog& log,
          const std::string& version, const ShowLoading& show_loading) {
  if (Status s = check_config(config); !s.ok()) return failed(log, kExitUsage, s);
  StopSignal stop;
  log.info("start", {{"version", version}, {"pid", int64_t{getpid()}}});
  const Clock clock;
  Server server(server_options(config), log);
  // First the port: who asks while the models load hears that it is not ready.
  if (Status s = server.start(); !s.ok()) {
    return failed(log, s.code() == Code::kFailedPrecondition ? kExitFailed : kExitUsage, s);
  }
  for (const ModelConfig& model : config.models) {
    if (stop.raised()) break;
    log.info("load", {{"path", model.path}});
    const TimePoint begun = clock.now();
    Result<ServedModel> loaded = load_model(model, config, make_model, clock, show_loading);
    if (show_loading) show_loading(0, 0);
    if (!loaded.ok()) return failed(log, kExitFailed, loaded.status());
    log.info("loaded", {{"model", loaded->name}, {"seconds", seconds_between(begun, clock.now())}});
    if (Status s = server.models().add(std::move(*loaded)); !s.ok())
      return failed(log, kExitUsage, s);
  }
  if (!stop.raised()) {
    server.ready();
    const auto models = server.models().all();
    log_capacity(*models, log);
    log_memory(memory_bound(config, sessions_of(*models)), log);
    log.info("ready", {{"models", int64_t(models->size())}, {"address", server.address()}});
  }
  return serve_until_the_end(server, config, log, stop);
}

}  // namespace runnel
