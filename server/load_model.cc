#include "server/load_model.h"

#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "engine/engine.h"
#include "engine/rewinds.h"
#include "engine/token_stream.h"
#include "models/check_forward.h"
#include "models/make_model.h"
#include "models/state/file.h"

namespace runnel {
namespace {

constexpr auto kWarmUp = std::chrono::seconds(60);

EngineOptions engine_options(const ServerConfig& config) {
  const RewindConfig rewind = *parse_rewind(config.rewind);  // check_config() has read it
  return {.mailbox = config.limit(limits::kMailbox),
          .mailbox_bytes = config.limit(limits::kMailboxBytes),
          .queue = config.limit(limits::kQueue),
          .queue_bytes = config.limit(limits::kQueueBytes),
          .sessions_per_caller = config.limit(limits::kSessionsPerCaller),
          .record_bytes = config.limit(limits::kRecordBytes),
          .stream_room = config.limit(limits::kStreamRoom),
          .samples = config.limit(limits::kSamples),
          .prompt_values = config.limit(limits::kPromptValues),
          .max_values = config.limit(limits::kMaxValues),
          .rewind_values = rewind.values,
          .rewind_every = rewind.every,
          .stall_timeout = milliseconds_of(config, limits::kStallTimeoutMs),
          .idle_timeout = milliseconds_of(config, limits::kIdleTimeoutMs)};
}

// Slots for sessions and their snapshots, of which many steps in a launch need more: where nobody
// says how many, one.
Result<ModelLimits> with_snapshots(ModelLimits limits, const EngineOptions& options) {
  if (limits.steps == 0 && options.rewind_values > 0) limits.steps = 1;
  const int64_t each = 1 + snapshots_of(options, limits.steps);
  const int64_t sessions = limits.slots == 0 ? kMostUnasked : limits.slots;
  if (sessions * each > std::numeric_limits<SlotId>::max()) {
    return invalid_argument("rewind is " + std::to_string(options.rewind_values) + "," +
                            std::to_string(options.rewind_every) + ", which makes " +
                            std::to_string(sessions * each) + " states of " +
                            std::to_string(sessions) +
                            " sessions with their snapshots: lower one of them");
  }
  limits.slots *= static_cast<int>(each);
  limits.slots_of_session = static_cast<int>(each);
  return limits;
}

// What the model must have so that its sessions can go back.
Status check_rewind(const ModelLimits& limits, const EngineOptions& options) {
  if (options.rewind_values == 0) return {};
  if (limits.chunk > 1 && options.rewind_every != limits.chunk) {
    return invalid_argument(
        "prompts go in chunks, and a session that goes back has the same bits only where its "
        "snapshots stand a chunk apart: set rewind to " +
        std::to_string(options.rewind_values) + "," + std::to_string(limits.chunk));
  }
  if (limits.chunk > 1 && limits.steps > 1) {
    return invalid_argument(
        "prompts go in chunks, and a session that goes back has the same bits only where no launch "
        "has several steps: set limits.steps_per_launch to 1, or take prompts in steps");
  }
  return {};
}

// Samples two values, so that the first client does not pay for what happens once. Waits: nobody
// is served yet.
Status warm_up(Engine& engine) {
  struct Waiter {
    std::mutex mutex;
    std::condition_variable came;
    bool woken = false;
  };
  const auto waiter = std::make_shared<Waiter>();  // the last wake may come after the end is taken
  GenerateRequest request;
  request.prompt = {0};
  request.max_values = 2;
  request.seed = 0;
  const auto stream =
      std::make_shared<TokenStream>(request.delivery, engine.stream_room(1), 0, [waiter] {
        std::lock_guard lock(waiter->mutex);
        waiter->woken = true;
        waiter->came.notify_one();
      });
  if (Status s = engine.generate(std::move(request), stream); !s.ok()) return s;
  StreamGroup group;
  while (!group.end) {
    if (stream->take(group)) continue;
    std::unique_lock lock(waiter->mutex);
    if (!waiter->came.wait_for(lock, kWarmUp,
                               [&] { return std::exchange(waiter->woken, false); })) {
      return {Code::kDeadlineExceeded, "the model did not answer its first call within a minute"};
    }
  }
  return *group.end;
}

}  // namespace

Duration milliseconds_of(const ServerConfig& config, const Limit& limit) {
  return std::chrono::milliseconds(config.limit(limit));
}

ModelLimits model_limits(const ServerConfig& config) {
  return {.slots = static_cast<int>(config.limit(limits::kSessions)),
          .rows = static_cast<int>(config.limit(limits::kBatchRows)),
          .values = static_cast<int>(config.limit(limits::kBatchValues)),
          .steps = static_cast<int>(config.limit(limits::kStepsPerLaunch))};
}

Result<ServedModel> load_model(const ModelConfig& from, const ServerConfig& config,
                               const ModelFactory& make_model, const Clock& clock,
                               LoadProgress progress) {
  const Result<Bundle> bundle = load_bundle(from.path, std::move(progress));
  if (!bundle.ok()) return bundle.status();
  EngineOptions options = engine_options(config);
  const Result<ModelLimits> limits = with_snapshots(model_limits(config), options);
  if (!limits.ok()) return limits.status();
  Result<LoadedModel> loaded = make_model(*bundle, config, *limits);
  if (!loaded.ok()) return loaded.status();
  if (Status s = check_rewind(loaded->model->limits(), options); !s.ok()) return s;
  if (Status s = check_forward(*loaded->model); !s.ok()) {
    return Status(s.code(), from.path + ": " + s.message());
  }
  ServedModel served;
  served.name = from.name.empty() ? bundle->spec.name : from.name;
  served.backend = std::move(loaded->backend);
  served.instructions = std::move(loaded->instructions);
  served.tokenizer = bundle->tokenizer;
  options.computes = loaded->model->layout().numerics.starts_with("cpu/");
  served.engine = std::make_unique<Engine>(std::move(loaded->model), options, clock);
  served.weight_digest = bundle->weight_digest;
  if (Status s = warm_up(*served.engine); !s.ok()) return s;
  if (!config.states.empty()) {
    const std::string digest = model_digest(bundle->spec, bundle->weight_digest);
    auto states = load_states(config.states, digest, *served.engine);
    if (!states.ok()) return states.status();
    served.states = std::move(*states);
  }
  return served;
}

}  // namespace runnel
