#include "server/serve.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "engine/engine.h"
#include "engine/token_stream.h"
#include "server/server.h"
#include "server/stop_signal.h"

namespace runnel {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr auto kTendInterval = std::chrono::seconds(1);
constexpr auto kWarmUp = std::chrono::seconds(60);

Duration milliseconds_of(const ServerConfig& config, const Limit& limit) {
  return std::chrono::milliseconds(config.limit(limit));
}

EngineOptions engine_options(const ServerConfig& config) {
  return {.batch_rows = config.limit(limits::kBatchRows),
          .batch_values = config.limit(limits::kBatchValues),
          .mailbox = config.limit(limits::kMailbox),
          .stream_room = config.limit(limits::kStreamRoom),
          .steps_per_launch = config.limit(limits::kStepsPerLaunch),
          .samples = config.limit(limits::kSamples),
          .prompt_values = config.limit(limits::kPromptValues),
          .max_values = config.limit(limits::kMaxValues),
          .stall_timeout = milliseconds_of(config, limits::kStallTimeoutMs),
          .idle_timeout = milliseconds_of(config, limits::kIdleTimeoutMs)};
}

ModelLimits model_limits(const ServerConfig& config) {
  return {.slots = static_cast<int>(config.limit(limits::kSessions)),
          .rows = static_cast<int>(config.limit(limits::kBatchRows)),
          .values = static_cast<int>(config.limit(limits::kBatchValues)),
          .steps = static_cast<int>(config.limit(limits::kStepsPerLaunch))};
}

ServerOptions server_options(const ServerConfig& config) {
  return {.address = config.address,
          .message_bytes = config.limit(limits::kMessageBytes),
          .streams_per_connection = config.limit(limits::kStreamsPerConnection),
          .delivery = {.max_values = static_cast<int>(config.limit(limits::kDeliveryValues)),
                       .max_delay = milliseconds_of(config, limits::kDeliveryDelayMs)},
          .stall_timeout = milliseconds_of(config, limits::kStallTimeoutMs)};
}

// Samples two values, so that the first client does not pay for what happens once. Waits: nobody
// is served yet.
Status warm_up(Engine& engine) {
  std::mutex mutex;
  std::condition_variable came;
  bool woken = true;
  GenerateRequest request;
  request.prompt = {0};
  request.max_values = 2;
  request.seed = 0;
  const auto stream =
      std::make_shared<TokenStream>(request.delivery, engine.stream_room(1), 0, [&] {
        std::lock_guard lock(mutex);
        woken = true;
        came.notify_one();
      });
  if (Status s = engine.generate(std::move(request), stream); !s.ok()) return s;
  StreamGroup group;
  while (!group.end) {
    if (stream->take(group)) continue;
    std::unique_lock lock(mutex);
    if (!came.wait_for(lock, kWarmUp, [&] { return std::exchange(woken, false); })) {
      return {Code::kDeadlineExceeded, "the model did not answer its first call within a minute"};
    }
  }
  return *group.end;
}

Result<ServedModel> load(const ModelConfig& from, const ServerConfig& config,
                         const ModelFactory& make_model, const Clock& clock, const EventLog& log) {
  log.info("load", {{"path", from.path}});
  const Result<Bundle> bundle = load_bundle(from.path);
  if (!bundle.ok()) return bundle.status();
  Result<LoadedModel> loaded = make_model(*bundle, config, model_limits(config));
  if (!loaded.ok()) return loaded.status();
  ServedModel served;
  served.name = from.name.empty() ? bundle->spec.name : from.name;
  served.backend = std::move(loaded->backend);
  served.engine = std::make_unique<Engine>(std::move(loaded->model), engine_options(config), clock);
  served.info = describe_model(served.name, *bundle, *served.engine);
  if (Status s = warm_up(*served.engine); !s.ok()) return s;
  return served;
}

void log_capacity(const Server& server, const EventLog& log) {
  for (const auto& [name, model] : server.models().all()) {
    const v1::ModelInfo& info = model.info;
    log.info("model", {{"model", name},
                       {"parameters", info.parameters()},
                       {"state_bytes", info.state_bytes()},
                       {"sessions", info.sessions()},
                       {"states_bytes", info.state_bytes() * info.sessions()},
                       {"numerics", info.numerics()},
                       {"weights", info.weight_digest()}});
  }
}

int failed(const EventLog& log, int code, const Status& status) {
  log.error("failed",
            {{"code", std::string(code_name(status.code()))}, {"message", status.message()}});
  return code;
}

}  // namespace

int serve(const ServerConfig& config, const ModelFactory& make_model, const EventLog& log,
          const std::string& version) {
  if (Status s = check_config(config); !s.ok()) return failed(log, kExitUsage, s);
  StopSignal stop;
  log.info("start", {{"version", version}, {"pid", int64_t{getpid()}}});
  const Clock clock;
  Server server(server_options(config), log);
  // First the port: who asks while the models load hears that it is not ready.
  if (Status s = server.start(); !s.ok()) return failed(log, kExitFailed, s);
  for (const ModelConfig& model : config.models) {
    if (stop.raised()) break;
    Result<ServedModel> loaded = load(model, config, make_model, clock, log);
    if (!loaded.ok()) return failed(log, kExitFailed, loaded.status());
    if (Status s = server.add(std::move(*loaded)); !s.ok()) return failed(log, kExitUsage, s);
  }
  if (!stop.raised()) {
    server.ready();
    log_capacity(server, log);
    log.info("ready",
             {{"models", int64_t(server.models().all().size())}, {"address", server.address()}});
  }
  int signal = 0;
  while (signal == 0) {
    signal = stop.wait(kTendInterval);
    server.tend();
  }
  log.info("stop", {{"signal", int64_t{signal}}});
  server.drain(milliseconds_of(config, limits::kGraceMs));
  log.info("exit", {{"code", int64_t{0}}});
  return 0;
}

}  // namespace runnel
