#include "server/process/update_models.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/file_stamp.h"
#include "base/text.h"
#include "models/template/load_template.h"

namespace runnel {
namespace {

using ModelPointer = std::shared_ptr<const ServedModel>;

// Returns the served model with the path and the name that `from` asks for, or null if no model has
// them. If two served models were loaded from this path, returns the one with these files.
ModelPointer served_from(const ServedModels& models, const ModelConfig& from,
                         const FileStamps& files) {
  const auto all = models.all();
  ModelPointer found;
  for (const auto& [name, model] : *all) {
    const std::string& called = from.name.empty() ? model->engine->spec().name : from.name;
    if (model->path != from.path || called != name) continue;
    if (found == nullptr || model->files == files) found = model;
  }
  return found;
}

Status two_named(const std::string& name) {
  return {Code::kAlreadyExists, "two models are named " + quote(name) + "; give one another name"};
}

// Serves one model of the configuration. `taken` has the names of the models before it.
// `name` is set to the model's name, or to that of the running model that stays; empty if there is
// none.
Status serve_one(ServedModels& models, const ModelConfig& from, const LoadOne& load,
                 std::set<std::string>& taken, std::string& name, ReloadReport& report) {
  const auto files = files_of(from);
  const ModelPointer running = served_from(models, from, files);
  if (running != nullptr) name = running->name;
  if (running != nullptr && running->files == files) {
    return taken.insert(name).second ? Status() : two_named(name);
  }
  Result<ServedModel> loaded = load(from);
  if (!loaded.ok()) return loaded.status();
  if (!taken.insert(loaded->name).second) return two_named(loaded->name);
  name = loaded->name;
  const bool is_there = models.all()->contains(name);
  (is_there ? report.replaced : report.added).push_back(name);
  return is_there ? models.replace(std::move(*loaded)) : models.add(std::move(*loaded));
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

FileStamps files_of(const ModelConfig& from) {
  FileStamps files = directory_stamp(from.path);
  // The names of a directory's files have no "/", so these keys are unique.
  std::error_code error;
  if (std::filesystem::is_regular_file(from.path, error)) files["/"] = file_stamp(from.path);
  files[kToolTemplateFile] = file_stamp(from.path + "/" + kToolTemplateFile);
  const std::string& chat = from.chat_template;
  if (!chat.empty()) files["/" + chat] = file_stamp(chat);
  return files;
}

std::vector<ReloadReport::Refused> use_aliases(ServedModels& models,
                                               const std::vector<ModelConfig>& wanted,
                                               const std::vector<std::string>& names,
                                               bool keep_others) {
  std::vector<ReloadReport::Refused> refused;
  std::map<std::string, std::string> aliases;
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const std::string& alias : wanted[i].aliases) {
      if (has(names, alias)) refused.push_back({alias, two_named(alias).message()});
      if (!names[i].empty()) aliases[alias] = names[i];
    }
  }
  const auto all = models.all();
  for (const auto& [name, model] : *all) {
    if (!keep_others && refused.empty()) break;
    for (const std::string& alias : models.aliases_of(name)) aliases.emplace(alias, name);
  }
  models.set_aliases(std::move(aliases));
  return refused;
}

ReloadReport update_models(ServedModels& models, const std::vector<ModelConfig>& wanted,
                           const LoadOne& load) {
  ReloadReport report;
  std::set<std::string> taken;
  std::vector<std::string> names(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ModelConfig& from = wanted[i];
    if (Status s = serve_one(models, from, load, taken, names[i], report); !s.ok()) {
      report.refused.push_back({from.name.empty() ? from.path : from.name, s.message()});
    }
  }
  for (auto& refused : use_aliases(models, wanted, names, !report.refused.empty())) {
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
