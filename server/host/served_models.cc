#include "server/host/served_models.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/fields.h"
#include "base/limits.h"
#include "base/text.h"
#include "config/server_config.h"
#include "models/bundle/config.h"
#include "models/state/file.h"

namespace runnel {
namespace {

// Longer than a scheduler waits for its device (Launches::collect()): at most a minute and 10 ms
// for each of 4,096 rows in each of 64 steps, which is 45 minutes.
constexpr auto kLastModel = std::chrono::hours(1);

// Names in a message. The metadata of a status has its message up to three times, and clients of
// gRPC refuse more than 8 KiB of metadata.
constexpr size_t kMostNamed = 16;

// The memory of a description: for its short fields and aliases, and for each symbol in addition to
// its bytes.
constexpr int64_t kDescribedAnyway = 4096 + kMaxAliases * 2 * (kMaxNameLength + 96);
constexpr int64_t kDescribedSymbol = 96;

// The texts exist twice: in the message and encoded.
int64_t bytes_described(const ServedModel& model) {
  const std::string& chat = model.chat ? model.chat->name() : model.no_chat;
  int64_t bytes = kDescribedAnyway + 2 * (std::ssize(model.spec_json) + std::ssize(chat));
  if (model.chat) bytes += 2 * std::ssize(model.chat->stop_text());
  for (const std::string& symbol : model.engine->spec().symbols) {
    bytes += kDescribedSymbol + 2 * std::ssize(symbol);
  }
  return bytes;
}

void add_counts(ModelFigures& sum, const CallMetrics& calls, const EngineMetrics& engine) {
  sum.calls.add(calls);
  sum.engine.add(engine);
}

std::string names_of(const ServedModels::ByName& models) {
  if (models.empty()) return "none";
  std::string names;
  size_t left = models.size();
  for (const auto& [name, model] : models) {
    if (models.size() - left == kMostNamed) return names + " and " + std::to_string(left) + " more";
    names += (names.empty() ? "" : ", ") + quote(name);
    --left;
  }
  return names;
}

Status no_model(const std::string& name, const ServedModels::ByName& models) {
  Status status = not_found("no model " + quote(name) + "; this server has " + names_of(models));
  return status.at_field(fields::kModel);
}

}  // namespace

// A model until the reaper ends it. The last reference may be released on the thread of its own
// engine, which cannot join itself.
struct ServedModels::Living {
  ServedModels& models;
  std::unique_ptr<const ServedModel> model;

  void end() {
    models.keep_counts(*model);
    model.reset();
    std::lock_guard lock(models.living_mutex_);
    --models.living_;
    models.ended_.notify_all();
  }
};

ServedModels::~ServedModels() {
  publish({});
  std::unique_lock lock(living_mutex_);
  const bool all = ended_.wait_for(lock, kLastModel, [&] { return living_ == 0; });
  check(all, "every call has let go of its model");
}

std::shared_ptr<const ServedModel> ServedModels::keep(ServedModel model) {
  model.spec_json = spec_to_json(model.engine->spec());
  model.state_digest = model_digest(model.engine->spec(), model.weight_digest);
  model.described_bytes = bytes_described(model);
  if (draining_) model.engine->drain();
  model.calls = std::make_unique<CallMetrics>();
  auto living = std::make_shared<Living>(
      Living{*this, std::make_unique<const ServedModel>(std::move(model))});
  const ServedModel* const kept = living->model.get();
  {
    std::lock_guard lock(living_mutex_);
    ++living_;
    counting_.insert(kept);
  }
  return {kept, [this, living = std::move(living)](const ServedModel*) {
            reaper_.post<&Living::end>(living);
          }};
}

// Counts of a name continue to grow if the model has a successor. So only names without a model may
// lose their counts.
void ServedModels::keep_counts(const ServedModel& model) {
  std::lock_guard lock(living_mutex_);
  counting_.erase(&model);
  add_counts(past_[model.name], *model.calls, model.engine->metrics());
  std::set<std::string> in_use = {kOtherModels};
  for (const ServedModel* living : counting_) in_use.insert(living->name);
  for (auto past = past_.begin(); past != past_.end() && past_.size() > kPastNames;) {
    if (in_use.contains(past->first)) {
      ++past;
      continue;
    }
    add_counts(past_[kOtherModels], past->second.calls, past->second.engine);
    past = past_.erase(past);
  }
}

std::map<std::string, ModelFigures> ServedModels::figures() const {
  std::map<std::string, ModelFigures> all;
  std::lock_guard lock(living_mutex_);
  for (const auto& [name, past] : past_) add_counts(all[name], past.calls, past.engine);
  for (const ServedModel* model : counting_) {
    ModelFigures& figures = all[model->name];
    add_counts(figures, *model->calls, model->engine->metrics());
    const EngineStats stats = model->engine->stats();
    figures.slots += stats.sessions;
    figures.slots_free += stats.sessions_free;
    figures.waiting += stats.waiting;
    for (size_t i = 0; i < stats.slots_by_state.size(); ++i) {
      figures.slots_by_state[i] += stats.slots_by_state[i];
    }
    // The engine counts a stored state as an idle session.
    figures.slots_stored += std::ssize(model->states);
    figures.slots_by_state[static_cast<size_t>(SessionPhase::kIdle)] -= std::ssize(model->states);
  }
  return all;
}

Status ServedModels::add(ServedModel model) {
  std::lock_guard lock(changing_);
  Names names = *names_.load();
  const std::string name = model.name;
  if (names.models.contains(name)) {
    return {Code::kAlreadyExists, "two models are named " + quote(name) +
                                      "; give one another name, as in 'runnel serve other=DIR'"};
  }
  names.models.emplace(name, keep(std::move(model)));
  publish(std::move(names));
  return {};
}

Status ServedModels::replace(ServedModel model) {
  std::lock_guard lock(changing_);
  Names names = *names_.load();
  const auto found = names.models.find(model.name);
  if (found == names.models.end()) return no_model(model.name, names.models);
  found->second = keep(std::move(model));
  publish(std::move(names));
  return {};
}

Status ServedModels::retire(const std::string& name) {
  std::lock_guard lock(changing_);
  Names names = *names_.load();
  if (names.models.erase(name) == 0) return no_model(name, names.models);
  publish(std::move(names));
  return {};
}

void ServedModels::set_aliases(std::map<std::string, std::string> aliases) {
  std::lock_guard lock(changing_);
  Names names = *names_.load();
  names.aliases = std::move(aliases);
  publish(std::move(names));
}

std::vector<std::string> ServedModels::aliases_of(const std::string& name) const {
  std::vector<std::string> found;
  const auto names = names_.load();
  for (const auto& [alias, of] : names->aliases) {
    if (of == name && names->called(alias) == names->called(name)) found.push_back(alias);
  }
  return found;
}

void ServedModels::drain() {
  std::lock_guard lock(changing_);
  draining_ = true;
  const auto names = names_.load();
  for (const auto& [name, model] : names->models) model->engine->drain();
}

Status ServedModels::ready() const {
  if (is_open()) return {};
  Status status(Code::kUnavailable, "the server is not ready: it is loading its models; try again");
  return status.with_retry_after(std::chrono::milliseconds(500)).with_reason("loading");
}

std::shared_ptr<const ServedModels::ByName> ServedModels::all() const {
  const auto names = names_.load();
  return {names, &names->models};
}

std::shared_ptr<const ServedModel> ServedModels::Names::called(const std::string& name) const {
  auto found = models.find(name);
  const auto alias = aliases.find(name);
  if (found == models.end() && alias != aliases.end()) found = models.find(alias->second);
  return found == models.end() ? nullptr : found->second;
}

ServedModels::ByName ServedModels::Names::usable_by(const Caller& caller) const {
  ByName usable;
  for (const auto& [name, model] : models) {
    if (caller.may_use(name)) usable.emplace(name, model);
  }
  for (const auto& [alias, name] : aliases) {
    const auto model = called(alias);
    if (model != nullptr && caller.may_use(alias)) usable.emplace(model->name, model);
  }
  return usable;
}

bool ServedModels::may_use(const Caller& caller, const std::string& name) const {
  const auto may = [&](const std::string& one) { return caller.may_use(one); };
  return may(name) || std::ranges::any_of(aliases_of(name), may);
}

ServedModels::ByName ServedModels::all_for(const Caller& caller) const {
  return names_.load()->usable_by(caller);
}

Result<std::shared_ptr<const ServedModel>> ServedModels::find(const Caller& caller,
                                                              const std::string& name) const {
  if (Status s = ready(); !s.ok()) return s;
  const auto names = names_.load();
  const auto model = names->called(name);
  if (model != nullptr && (caller.may_use(name) || caller.may_use(model->name))) return model;
  const ByName usable = names->usable_by(caller);
  if (model != nullptr && usable.contains(model->name)) return model;
  if (name.empty() && usable.size() == 1) return usable.begin()->second;
  if (name.empty() && !usable.empty()) {
    return invalid_argument(place_of(fields::kModel) +
                            " is empty, and this server has several: name one of " +
                            names_of(usable));
  }
  return no_model(name, usable);
}

}  // namespace runnel
