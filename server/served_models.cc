#include "server/served_models.h"

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "models/bundle/config.h"

namespace runnel {
namespace {

// Longer than a scheduler waits for its device.
constexpr auto kLastModel = std::chrono::seconds(70);

// Of a description: its short fields, and a symbol beside its own bytes.
constexpr int64_t kDescribedAnyway = 4096;
constexpr int64_t kDescribedSymbol = 96;

// Both the JSON and the list of symbols are there twice: in the message and encoded.
int64_t bytes_described(const ServedModel& model) {
  int64_t bytes = kDescribedAnyway + 2 * std::ssize(model.spec_json);
  for (const std::string& symbol : model.engine->spec().symbols) {
    bytes += kDescribedSymbol + 2 * std::ssize(symbol);
  }
  return bytes;
}

std::string names_of(const ServedModels::ByName& models) {
  std::string names;
  for (const auto& [name, model] : models) names += (names.empty() ? "" : ", ") + quote(name);
  return names.empty() ? "none" : names;
}

Status no_model(const std::string& name, const ServedModels::ByName& models) {
  return not_found("no model " + quote(name) + "; this server has " + names_of(models));
}

}  // namespace

// A model until the reaper ends it. Whoever lets go of it last may be its own engine's thread,
// which cannot join itself.
struct ServedModels::Living {
  ServedModels& models;
  std::unique_ptr<const ServedModel> model;

  void end() {
    model.reset();
    std::lock_guard lock(models.living_mutex_);
    --models.living_;
    models.ended_.notify_all();
  }
};

ServedModels::~ServedModels() {
  models_.store(std::make_shared<const ByName>());
  std::unique_lock lock(living_mutex_);
  const bool all = ended_.wait_for(lock, kLastModel, [&] { return living_ == 0; });
  check(all, "every call has let go of its model");
}

std::shared_ptr<const ServedModel> ServedModels::keep(ServedModel model) {
  model.spec_json = spec_to_json(model.engine->spec());
  model.described_bytes = bytes_described(model);
  auto living = std::make_shared<Living>(
      Living{*this, std::make_unique<const ServedModel>(std::move(model))});
  const ServedModel* const kept = living->model.get();
  {
    std::lock_guard lock(living_mutex_);
    ++living_;
  }
  return {kept, [this, living = std::move(living)](const ServedModel*) {
            reaper_.post<&Living::end>(living);
          }};
}

Status ServedModels::add(ServedModel model) {
  std::lock_guard lock(changing_);
  ByName models = *all();
  const std::string name = model.name;
  if (models.contains(name)) {
    return {Code::kAlreadyExists, "two models are named " + quote(name) +
                                      "; give one another name, as in 'runnel serve other=DIR'"};
  }
  models.emplace(name, keep(std::move(model)));
  models_.store(std::make_shared<const ByName>(std::move(models)));
  return {};
}

Status ServedModels::replace(ServedModel model) {
  std::lock_guard lock(changing_);
  ByName models = *all();
  const auto found = models.find(model.name);
  if (found == models.end()) return no_model(model.name, models);
  found->second = keep(std::move(model));
  models_.store(std::make_shared<const ByName>(std::move(models)));
  return {};
}

Status ServedModels::retire(const std::string& name) {
  std::lock_guard lock(changing_);
  ByName models = *all();
  if (models.erase(name) == 0) return no_model(name, models);
  models_.store(std::make_shared<const ByName>(std::move(models)));
  return {};
}

Status ServedModels::ready() const {
  if (is_open()) return {};
  Status status(Code::kUnavailable, "the server is not ready: it is loading its models; try again");
  return status.with_retry_after(std::chrono::milliseconds(500));
}

ServedModels::ByName ServedModels::all_for(const Caller& caller) const {
  ByName usable = *all();
  std::erase_if(usable, [&](const auto& entry) { return !caller.may_use(entry.first); });
  return usable;
}

Result<std::shared_ptr<const ServedModel>> ServedModels::find(const Caller& caller,
                                                              const std::string& name) const {
  if (Status s = ready(); !s.ok()) return s;
  const auto models = all();
  const auto found = models->find(name);
  if (found != models->end() && caller.may_use(name)) return found->second;
  const ByName usable = all_for(caller);
  if (name.empty() && usable.size() == 1) return usable.begin()->second;
  if (name.empty() && !usable.empty()) {
    return invalid_argument("model is empty, and this server has several: name one of " +
                            names_of(usable));
  }
  return no_model(name, usable);
}

}  // namespace runnel
