#include "server/process/update_models.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/file_stamp.h"
#include "base/text.h"

namespace runnel {
namespace {

using ModelPointer = std::shared_ptr<const ServedModel>;

// The model that is served from the path and under the name that `from` asks for; null: none.
ModelPointer served_from(const ServedModels& models, const ModelConfig& from) {
  const auto all = models.all();
  for (const auto& [name, model] : *all) {
    const std::string& called = from.name.empty() ? model->engine->spec().name : from.name;
    if (model->path == from.path && called == name) return model;
  }
  return nullptr;
}

Status two_named(const std::string& name) {
  return {Code::kAlreadyExists, "two models are named " + quote(name) + "; give one another name"};
}

// Has one model of the configuration served; `taken` are the names of those before it.
Status serve_one(ServedModels& models, const ModelConfig& from, const LoadOne& load,
                 std::set<std::string>& taken, ReloadReport& report) {
  const ModelPointer running = served_from(models, from);
  if (running != nullptr && running->files == directory_stamp(from.path)) {
    return taken.insert(running->name).second ? Status() : two_named(running->name);
  }
  Result<ServedModel> loaded = load(from);
  if (!loaded.ok()) return loaded.status();
  const std::string name = loaded->name;
  if (!taken.insert(name).second) return two_named(name);
  const bool is_there = models.all()->contains(name);
  (is_there ? report.replaced : report.added).push_back(name);
  return is_there ? models.replace(std::move(*loaded)) : models.add(std::move(*loaded));
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::vector<ReloadReport::Refused> use_aliases(ServedModels& models,
                                               const std::vector<ModelConfig>& wanted,
                                               bool keep_others) {
  std::map<std::string, std::string> aliases;
  const auto all = models.all();
  for (const auto& [name, model] : *all) {
    if (!keep_others) break;
    for (const std::string& alias : models.aliases_of(name)) aliases.emplace(alias, name);
  }
  std::set<std::string> names;
  for (const ModelConfig& from : wanted) {
    if (const ModelPointer model = served_from(models, from)) names.insert(model->name);
  }
  std::vector<ReloadReport::Refused> refused;
  for (const ModelConfig& from : wanted) {
    const ModelPointer model = served_from(models, from);
    for (const std::string& alias : from.aliases) {
      if (names.contains(alias)) refused.push_back({alias, two_named(alias).message()});
      if (model != nullptr) aliases[alias] = model->name;
    }
  }
  models.set_aliases(std::move(aliases));
  return refused;
}

ReloadReport update_models(ServedModels& models, const std::vector<ModelConfig>& wanted,
                           const LoadOne& load) {
  ReloadReport report;
  std::set<std::string> taken;
  for (const ModelConfig& from : wanted) {
    if (Status s = serve_one(models, from, load, taken, report); !s.ok()) {
      report.refused.push_back({from.name.empty() ? from.path : from.name, s.message()});
    }
  }
  for (auto& refused : use_aliases(models, wanted, !report.refused.empty())) {
    report.refused.push_back(std::move(refused));
  }
  const auto all = models.all();
  for (const auto& [name, model] : *all) {
    if (!taken.contains(name) && report.refused.empty()) {
      if (models.retire(name).ok()) report.retired.push_back(name);
    } else if (!has(report.added, name) && !has(report.replaced, name)) {
      report.kept.push_back(name);
    }
  }
  return report;
}

}  // namespace runnel
