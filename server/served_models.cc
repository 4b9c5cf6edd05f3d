#include "server/served_models.h"

#include "base/text.h"

namespace runnel {
namespace {

std::string names_of(const ServedModels::ByName& models) {
  std::string names;
  for (const auto& [name, model] : models) names += (names.empty() ? "" : ", ") + quote(name);
  return names.empty() ? "none" : names;
}

}  // namespace

Status ServedModels::add(ServedModel model) {
  const std::string name = model.name;
  if (models_.contains(name)) {
    return {Code::kAlreadyExists, "two models are named " + quote(name) +
                                      "; give one another name, as in 'runnel serve other=DIR'"};
  }
  models_.emplace(name, std::make_shared<const ServedModel>(std::move(model)));
  return {};
}

Status ServedModels::ready() const {
  if (is_open()) return {};
  Status status(Code::kUnavailable, "the server is not ready: it is loading its models; try again");
  return status.with_retry_after(std::chrono::milliseconds(500));
}

ServedModels::ByName ServedModels::all_for(const Caller& caller) const {
  ByName usable = models_;
  std::erase_if(usable, [&](const auto& entry) { return !caller.may_use(entry.first); });
  return usable;
}

Result<std::shared_ptr<const ServedModel>> ServedModels::find(const Caller& caller,
                                                              const std::string& name) const {
  if (Status s = ready(); !s.ok()) return s;
  const auto found = models_.find(name);
  if (found != models_.end() && caller.may_use(name)) return found->second;
  const ByName models = all_for(caller);
  if (name.empty() && models.size() == 1) return models.begin()->second;
  if (name.empty()) {
    return invalid_argument("model is empty, and this server has several: name one of " +
                            names_of(models));
  }
  return not_found("no model " + quote(name) + "; this server has " + names_of(models));
}

}  // namespace runnel
