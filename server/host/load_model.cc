#include "server/host/load_model.h"

#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "base/prefix_limits.h"
#include "base/text.h"
#include "engine/engine.h"
#include "engine/rewinds.h"
#include "engine/token_stream.h"
#include "models/check_forward.h"
#include "models/make_model.h"
#include "models/state/file.h"
#include "models/template/load_template.h"

namespace runnel {
namespace {

constexpr auto kWarmUp = std::chrono::seconds(60);

// States of prompts are kept only if callers have keys or are all on this machine, because the time
// to an answer reveals what others have asked.
int64_t prefix_cache_bytes(const ServerConfig& config) {
  const bool open =
      config.keys.empty() && (config.insecure_public || !config.tls_client_ca.empty());
  return open ? 0 : config.limit(limits::kPrefixCacheBytes);
}

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
          .prefix_cache_bytes = prefix_cache_bytes(config),
          .stall_timeout = milliseconds_of(config, limits::kStallTimeoutMs),
          .idle_timeout = milliseconds_of(config, limits::kIdleTimeoutMs),
          .prompt_slowdown = config.limit(limits::kPromptSlowdown)};
}

// Adds snapshot slots. More steps per launch need more snapshots, so the default is one step when
// rewind is on.
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

// Checks that the model supports rewinding sessions.
Status check_rewind(const ModelLimits& limits, const EngineOptions& options) {
  if (options.rewind_values == 0) return {};
  if (limits.chunk > 1 && options.rewind_every != limits.chunk) {
    return invalid_argument(
        "prompts go in chunks, and a session that goes back has the same bits only where its "
        "snapshots are one chunk apart: set rewind to " +
        std::to_string(options.rewind_values) + "," + std::to_string(limits.chunk));
  }
  if (limits.chunk > 1 && limits.steps > 1) {
    return invalid_argument(
        "prompts go in chunks, and a session that goes back has the same bits only where no launch "
        "has several steps: set limits.steps_per_launch to 1, or take prompts in steps");
  }
  return {};
}

// Samples two values, so that the first client does not pay for one-time costs. Blocks, because
// nobody is served yet.
Status warm_up(Engine& engine) {
  struct Waiter {
    std::mutex mutex;
    std::condition_variable came;
    bool woken = false;
  };
  const auto waiter = std::make_shared<Waiter>();  // the last wake may come after the wait is over
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

// The templates of a model: the operator's, or else its own.
Result<std::shared_ptr<const ChatFormat>> chat_of(const ModelConfig& from, const Bundle& bundle) {
  if (bundle.tokenizer == nullptr) return not_found("its values are not text");
  return load_chat_format(bundle.directory, bundle.tokenizer, from.chat_template);
}

// Finds out how conversations are written. A model that has no template, or one that fails, is
// served without chat. An operator's template must work.
Status set_chat(const ModelConfig& from, const Bundle& bundle, ServedModel& served) {
  auto chat = chat_of(from, bundle);
  if (chat.ok()) {
    served.chat = std::move(*chat);
    return {};
  }
  if (!from.chat_template.empty()) {
    return Status(chat.status().code(), from.path + ": chat_template " + quote(from.chat_template) +
                                            ": " + chat.status().message());
  }
  served.no_chat = chat.status().message();
  return {};
}

}  // namespace

Duration milliseconds_of(const ServerConfig& config, const Limit& limit) {
  return std::chrono::milliseconds(config.limit(limit));
}

ModelLimits model_limits(const ServerConfig& config) {
  return {.slots = static_cast<int>(config.limit(limits::kSessions)),
          .rows = static_cast<int>(config.limit(limits::kBatchRows)),
          .values = static_cast<int>(config.limit(limits::kBatchValues)),
          .steps = static_cast<int>(config.limit(limits::kStepsPerLaunch)),
          .recent = static_cast<int>(config.limit(limits::kRecentValues))};
}

Result<ServedModel> load_model(const ModelConfig& from, const ServerConfig& config,
                               const ModelFactory& make_model, const Clock& clock,
                               LoadProgress progress) {
  Result<Bundle> bundle = load_bundle(from.path, std::move(progress));
  if (!bundle.ok()) return bundle.status();
  if (!from.name.empty()) bundle->spec.name = from.name;  // errors name the model by this
  if (Status s = set_context(config.context, bundle->spec); !s.ok()) return s;
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
  served.name = bundle->spec.name;
  served.backend = std::move(loaded->backend);
  served.instructions = std::move(loaded->instructions);
  served.tokenizer = bundle->tokenizer;
  if (Status s = set_chat(from, *bundle, served); !s.ok()) return s;
  options.computes = loaded->model->device() == DeviceKind::kCpu;
  served.engine = std::make_unique<Engine>(std::move(loaded->model), options, clock);
  if (Status s = warm_up(*served.engine); !s.ok()) return s;
  Result<std::string> digest = bundle->digest();  // last, because hashing runs during the load
  if (!digest.ok()) return digest.status();
  served.weight_digest = std::move(*digest);
  if (!config.stored_states.empty()) {
    auto states = load_states(config.stored_states,
                              model_digest(bundle->spec, served.weight_digest), *served.engine);
    if (!states.ok()) return states.status();
    served.states = std::move(*states);
  }
  return served;
}

}  // namespace runnel
