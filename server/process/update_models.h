// Brings the models that are served in line with a configuration, while calls run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/file_stamp.h"
#include "base/status.h"
#include "config/server_config.h"
#include "server/host/reload_report.h"
#include "server/host/served_models.h"

namespace runnel {

// Loads one model, with its path and files.
using LoadOne = std::function<Result<ServedModel>(const ModelConfig& from)>;

// The stamps of the files that a model is made of: those of its directory, and the operator's chat
// template.
FileStamps files_of(const ModelConfig& from);

// Each model of `wanted` is served as soon as it is loaded: beside the others, or in the place of
// the one of its name. One whose name, path and files are as they were is kept. Then the aliases
// change, and the models that are not wanted any more retire; but where something is refused,
// nothing retires, and aliases of before stay unless others of `wanted` take their place. Waits for
// `load`.
ReloadReport update_models(ServedModels& models, const std::vector<ModelConfig>& wanted,
                           const LoadOne& load);

// Gives the models that are served the aliases of `wanted`: names[i] is the name of wanted[i], or
// empty where it is not served. They take the place of all of before or, with `keep_others` and
// where one is refused, of those alone that are in `wanted`. Refused: aliases that are a name.
std::vector<ReloadReport::Refused> use_aliases(ServedModels& models,
                                               const std::vector<ModelConfig>& wanted,
                                               const std::vector<std::string>& names,
                                               bool keep_others);

}  // namespace runnel
