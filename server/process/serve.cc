#include "server/process/serve.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/chat_limits.h"
#include "base/stop_limits.h"
#include "base/within_memory.h"
#include "config/field.h"
#include "server/grpc/library_log.h"
#include "server/host/kept_sessions.h"
#include "server/process/http_port.h"
#include "server/process/memory_bound.h"
#include "server/process/metrics_port.h"
#include "server/process/notify_ready.h"
#include "server/process/open_files.h"
#include "server/process/reloader.h"
#include "server/process/server.h"
#include "server/process/stop_signal.h"
#include "server/process/thread_room.h"
#include "server/process/update_models.h"

namespace runnel {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDevice = 3;
constexpr auto kTendInterval = std::chrono::seconds(1);
constexpr Duration kStoreEnds = std::chrono::seconds(1);

HostOptions host_options(const ServerConfig& config, const std::string& version) {
  return {
      .version = version,
      .keys = config.keys,
      .seal_keys = config.seal_keys,
      .call_bytes = config.limit(limits::kCallBytes),
      .delivery = {.max_values = static_cast<int>(config.limit(limits::kDeliveryValues)),
                   .max_delay = milliseconds_of(config, limits::kDeliveryDelayMs)},
      .text_bytes = config.limit(limits::kTextBytes),
      .samples = config.limit(limits::kSamples),
      .max_values = config.limit(limits::kMaxValues),
      .chat_values = std::min(config.limit(limits::kChatValues), config.limit(limits::kMaxValues)),
      .stall_timeout = milliseconds_of(config, limits::kStallTimeoutMs),
      .queue_time = std::chrono::milliseconds(config.queue_time_ms),
      .http_queue_time = std::chrono::milliseconds(config.http_queue_time_ms),
      .token_bytes = config.limit(limits::kTokenBytes),
      .token_ttl = milliseconds_of(config, limits::kTokenTtlMs),
      .access_log = config.log_access,
      .storage = {.settings = {.url = config.storage_url,
                               .sync = config.storage_sync,
                               .password_file = config.storage_password_file,
                               .tls = {.ca = config.storage_ca,
                                       .cert = config.storage_cert,
                                       .key = config.storage_key},
                               .times = {.ttl_ms = config.storage_ttl_ms,
                                         .lease_ms = config.storage_lease_ms,
                                         .timeout_ms = config.storage_timeout_ms}},
                  .log_bytes = config.storage_log_bytes,
                  .answer_bytes = config.storage_answer_bytes}};
}

GrpcOptions grpc_options(const ServerConfig& config) {
  return {.address = config.address,
          .insecure_public = config.insecure_public,
          .tls = {.certificate = config.tls_cert,
                  .key = config.tls_key,
                  .client_authorities = config.tls_client_ca},
          .message_bytes = config.limit(limits::kMessageBytes),
          .streams_per_connection = config.limit(limits::kStreamsPerConnection),
          .connections = config.limit(limits::kConnections),
          .connection_age_ms = config.limit(limits::kConnectionAgeMs),
          .network_bytes = config.limit(limits::kNetworkBytes)};
}

void log_model(const ServedModel& model, const EventLog& log) {
  const Engine& engine = *model.engine;
  const int64_t sessions = engine.stats().sessions;
  log.info("model", {{"model", model.name},
                     {"parameters", engine.spec().parameters()},
                     {"state_bytes", engine.state_bytes()},
                     {"sessions", sessions},
                     {"states", std::ssize(model.states)},
                     {"states_bytes", engine.state_bytes() * sessions},
                     {"rewind_bytes", engine.rewind_bytes()},
                     {"numerics", engine.numerics()},
                     {"instructions", model.instructions},
                     {"chat", model.chat ? model.chat->name() : "none: " + model.no_chat},
                     {"weights", model.weight_digest}});
}

// Logs how much memory the process may come to use, and limits its clients to that.
// RESOURCE_EXHAUSTED if the process may not use that much.
Status bound_memory(const ServerConfig& config, Server& server, const EventLog& log) {
  int64_t sessions = 0;
  int64_t loaded = 0;
  const auto models = server.models().all();
  for (const auto& [name, model] : *models) {
    sessions += model->engine->stats().sessions;
    loaded += model->loaded_bytes;
  }
  const MemoryBound bound = memory_bound(config, sessions, std::ssize(server.metrics_text()));
  server.allow_memory(memory_allowance(config, bound, loaded));
  log.info("memory", {{"most", bound.total()},
                      {"start", bound.start},
                      {"connections", bound.connections},
                      {"network", bound.network},
                      {"calls", bound.calls},
                      {"records", bound.records},
                      {"http", bound.http},
                      {"metrics", bound.metrics},
                      {"reload", loaded}});
  return check_addresses(bound.total() - bound.start);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

void log_report(const ReloadReport& report, const EventLog& log) {
  for (const ReloadReport::Refused& refused : report.refused) {
    log.warn("refused", {{"model", refused.model}, {"message", refused.reason}});
  }
  if (!report.needs_restart.empty()) {
    log.warn("restart", {{"settings", joined(report.needs_restart)},
                         {"message", std::string("these have changed and stay as they were: they "
                                                 "are read when the server starts")}});
  }
  log.info("reload", {{"added", joined(report.added)},
                      {"replaced", joined(report.replaced)},
                      {"retired", joined(report.retired)},
                      {"kept", joined(report.kept)},
                      {"refused", std::ssize(report.refused)}});
}

// Reads the settings again, and makes the models follow them.
Result<ReloadReport> reload(const ServerConfig& config, const Rereading& rereading,
                            const ModelLoader& loader, Server& server, const EventLog& log) {
  const Result<ServerConfig> wanted = rereading.read();
  if (!wanted.ok()) {
    Status failed(Code::kFailedPrecondition,
                  wanted.status().message() + "; what is served stays as it was");
    log.warn("reload", {{"message", failed.message()}});
    return failed;
  }
  // It is not known how much memory the loading takes. Without an allowance, this memory is not
  // mistaken for the memory of a flood. bound_memory() sets the allowance again.
  const auto load = [&](const ModelConfig& from) {
    server.allow_memory({});
    return loader.load(from);
  };
  Result<ReloadReport> report = within_memory([&]() -> Result<ReloadReport> {
    return update_models(server.models(), wanted->models, load);
  });
  if (report.ok()) {
    report->needs_restart = changed_fields(config, *wanted);
    log_report(*report, log);
    const auto all = server.models().all();
    for (const auto* names : {&report->added, &report->replaced}) {
      for (const std::string& name : *names) log_model(*all->at(name), log);
    }
  } else {
    log.warn("reload", {{"message", report.status().message()}});
  }
  if (Status s = bound_memory(config, server, log); !s.ok()) {
    log.warn("memory", {{"message", s.message()}});
  }
  return report;
}

// UNAVAILABLE is not a wrong setting, because the store may answer later.
int exit_code_of(const Status& start) {
  const bool may_pass =
      start.code() == Code::kFailedPrecondition || start.code() == Code::kUnavailable;
  return may_pass ? kExitFailed : kExitUsage;
}

int failed(const EventLog& log, int code, const Status& status) {
  log.error("failed",
            {{"code", std::string(code_name(status.code()))}, {"message", status.message()}});
  return code;
}

// Ends the process without running destructors. At its end, gRPC 1.51 would wait forever for a
// thread of its own that the system could not create.
[[noreturn]] void leave(const EventLog& log, const Status& cause) {
  std::_Exit(failed(log, kExitFailed, cause));
}

Status no_memory() { return {Code::kResourceExhausted, "there is not enough memory"}; }

Status no_thread(const std::system_error& error) {
  return {Code::kResourceExhausted, no_thread_text(error)};
}

// Why the process ends before serving.
struct Failure {
  int exit_code = 0;
  Status status;
};

// Loads and serves the models of the start. Also OK if the process is to stop.
Failure serve_first(const ServerConfig& config, const ModelLoader& loader, ServedModels& models,
                    StopSignal& stop, const ShowLoading& show_loading) {
  std::vector<std::string> names;
  for (const ModelConfig& from : config.models) {
    Result<ServedModel> loaded = loader.load(from, show_loading);
    if (stop.raised()) return {};
    if (!loaded.ok()) return {kExitFailed, loaded.status()};
    names.push_back(loaded->name);
    if (Status s = models.add(std::move(*loaded)); !s.ok()) return {kExitUsage, s};
  }
  const auto refused = use_aliases(models, config.models, names, false);
  if (refused.empty()) return {};
  return {kExitUsage, invalid_argument(refused.front().reason)};
}

struct HttpPorts {
  std::unique_ptr<HttpServer> metrics, doors;  // null without an address
};

Status open_http_ports(const ServerConfig& config, Server& server, const EventLog& log,
                       HttpPorts& ports) {
  if (!config.metrics_address.empty()) {
    auto port = open_metrics_port(
        config, [&] { return server.serving(); }, [&] { return server.metrics_text(); }, log,
        server.context().clock);
    if (!port.ok()) return port.status();
    ports.metrics = std::move(*port);
    log.info("metrics", {{"address", ports.metrics->address()}});
  }
  if (config.http_address.empty()) return {};
  auto port = open_http_port(config, server.context(), log);
  if (!port.ok()) return port.status();
  ports.doors = std::move(*port);
  log.info("http", {{"address", ports.doors->address()}});
  return {};
}

// Runs until a signal to stop arrives, or a device fails. Returns the device's failure.
Status serve_until_the_end(Server& server, const EventLog& log, StopSignal& stop,
                           Reloader& reloader) {
  int signal = 0;
  Status failure;
  while (signal == 0 && failure.ok()) {
    signal = stop.wait(kTendInterval);
    if (stop.take_reload()) reloader.ask_again();
    server.tend();
    failure = server.failure();
  }
  if (signal != 0) log.info("stop", {{"signal", int64_t{signal}}});
  return failure;
}

// Serves for the lame-duck period of a server that is to stop. Readiness is off, so that proxies
// turn away before a call is refused. A second signal ends the period, and so does the failure of a
// device, which is returned.
Status serve_as_lame_duck(Server& server, Duration period, const EventLog& log, StopSignal& stop) {
  if (!server.serving() || period == Duration(0)) return {};
  log.info("lame_duck", {{"ms", int64_t{period / std::chrono::milliseconds(1)}}});
  server.unready();
  const TimePoint end = std::chrono::steady_clock::now() + period;
  Status failure;
  for (bool over = false; !over && failure.ok();) {
    const Duration left = end - std::chrono::steady_clock::now();
    over = left <= Duration(0) || stop.wait_second(std::min(left, Duration(kTendInterval)));
    server.tend();
    failure = server.failure();
  }
  return failure;
}

// Whether a thread still waits for the store after the drain, and longer than a call may. The
// thread cannot be ended, and the server would wait for it.
bool is_store_hanging(Server& server, const ServerConfig& config, const EventLog& log) {
  const auto kept = server.context().kept;
  const Duration at_most =
      std::max<Duration>(kStoreEnds, std::chrono::milliseconds(config.storage_timeout_ms));
  if (kept == nullptr || kept->wait_until_idle(at_most)) return false;
  log.warn("storage",
           {{"message", std::string("the store does not answer; the process ends without it")}});
  return true;
}

// The parts of a serving process that are made before its server starts.
struct Process {
  const ServerConfig& config;
  const EventLog& log;
  const ModelLoader& loader;
  const ShowLoading& show_loading;
  StopSignal& stop;
  Server& server;
};

// Ends a server that cannot serve, and logs why. Returns the exit code.
int give_up(const Process& process, int code, const Status& cause) {
  if (cause.code() == Code::kResourceExhausted) leave(process.log, cause);
  process.server.drain(Duration(0));  // first, so that the log ends with the cause
  const bool is_hanging = is_store_hanging(process.server, process.config, process.log);
  const int exit_code = failed(process.log, code, cause);
  if (is_hanging) std::_Exit(exit_code);
  return exit_code;
}

// Opens all ports and loads the models. The exit code is 0 if the server is ready, or is to stop.
Failure start(const Process& process, HttpPorts& ports) {
  const auto& [config, log, loader, show_loading, stop, server] = process;
  // The port comes first, so that a client that asks while the models load learns that it is not
  // ready.
  if (Status s = server.start(); !s.ok()) return {exit_code_of(s), s};
  if (Status s = open_http_ports(config, server, log, ports); !s.ok()) return {exit_code_of(s), s};
  const Failure first = serve_first(config, loader, server.models(), stop, show_loading);
  if (!first.status.ok() || stop.raised()) return first;
  stop.spare_second(milliseconds_of(config, limits::kLameDuckMs) > Duration(0));
  const auto models = server.models().all();
  for (const auto& [name, model] : *models) log_model(*model, log);
  if (Status s = bound_memory(config, server, log); !s.ok()) return {kExitFailed, s};
  server.ready();
  log.info("ready", {{"models", int64_t(models->size())}, {"address", server.address()}});
  if (Status s = notify_ready(); !s.ok()) log.warn("ready", {{"message", s.message()}});
  return {};
}

// Starts the server, serves until the end, and drains. Returns the exit code.
int start_and_serve(const Process& process, const Rereading& rereading,
                    std::atomic<bool>& is_ending) {
  const auto& [config, log, loader, show_loading, stop, server] = process;
  Reloader reloader([&, &config = config, &loader = loader, &server = server, &log = log] {
    return reload(config, rereading, loader, server, log);
  });
  server.set_reload([&](ReloadDone done) { return reloader.ask(std::move(done)); });
  HttpPorts ports;  // destroyed after the drain, before the server
  if (const Failure cause = start(process, ports); !cause.status.ok()) {
    return give_up(process, cause.exit_code, cause.status);
  }
  Status failure = serve_until_the_end(server, log, stop, reloader);
  if (failure.ok()) {
    const Duration lame_duck = milliseconds_of(config, limits::kLameDuckMs);
    failure = serve_as_lame_duck(server, lame_duck, log, stop);
  }
  stop.spare_second(false);  // also after a failure without a lame-duck period
  if (!failure.ok()) failed(log, kExitDevice, failure);
  is_ending = true;
  reloader.stop();
  server.drain(milliseconds_of(config, limits::kGraceMs));
  const int last = failure.ok() ? 0 : kExitDevice;
  const bool is_hanging = is_store_hanging(server, config, log);
  log.info("exit", {{"code", int64_t{last}}});
  if (is_hanging) std::_Exit(last);
  return last;
}

int serve_within_limits(const ServerConfig& config, const Rereading& rereading,
                        const ModelFactory& make_model, const EventLog& log,
                        const std::string& version, const ShowLoading& show_loading) {
  StopSignal stop(rereading.on_hang_up);
  log.info("start", {{"version", version}, {"pid", int64_t{getpid()}}});
  for (const std::string& old : config.old_names) {
    log.warn("renamed", {{"message", old + "; the next release refuses the old name"}});
  }
  if (Status s = raise_open_files(config); !s.ok()) return failed(log, kExitFailed, s);
  const Clock clock;
  const LibraryLog library_log(log, clock);
  std::atomic<bool> is_ending{false};
  const ModelLoader loader(config, make_model, clock, log,
                           [&] { return is_ending.load() || stop.raised(); });
  Server server({.host = host_options(config, version), .grpc = grpc_options(config)}, log, clock);
  try {
    return start_and_serve({config, log, loader, show_loading, stop, server}, rereading, is_ending);
  } catch (const std::bad_alloc&) {
    leave(log, no_memory());
  } catch (const std::system_error& error) {
    leave(log, no_thread(error));
  }
}

// Checks whether the process may have the threads and the memory that it needs in addition to its
// models.
Status check_room(const ServerConfig& config) {
  const MemoryBound bound = memory_bound(config, 0, 0);
  return check_threads(threads_for(config), bound.total() - bound.start);
}

}  // namespace

int serve(const ServerConfig& config, const Rereading& rereading, const ModelFactory& make_model,
          const EventLog& log, const std::string& version, const ShowLoading& show_loading) {
  if (Status s = check_config(config); !s.ok()) return failed(log, kExitUsage, s);
  if (Status s = check_room(config); !s.ok()) return failed(log, kExitFailed, s);
  try {
    return serve_within_limits(config, rereading, make_model, log, version, show_loading);
  } catch (const std::bad_alloc&) {
    return failed(log, kExitFailed, no_memory());
  } catch (const std::system_error& error) {
    return failed(log, kExitFailed, no_thread(error));
  }
}

}  // namespace runnel
