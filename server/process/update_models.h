// Changes the served models to those of a configuration, while calls run.
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

// The stamps of the files of a model: the files of its directory, and the operator's chat template.
FileStamps files_of(const ModelConfig& from);

// Loads the models of `wanted` with `load`, and waits for the loads to end. Each model is served as
// soon as it is loaded. It is added, or replaces the model of its name. A model whose name, path
// and files have not changed is kept. Then the aliases change, and models that are no longer wanted
// are retired. If anything is refused, no model is retired, and old aliases stay unless `wanted`
// replaces them.
ReloadReport update_models(ServedModels& models, const std::vector<ModelConfig>& wanted,
                           const LoadOne& load);

// Gives the served models the aliases of `wanted`. names[i] is the name of wanted[i], or empty if
// it is not served. The aliases replace all old ones. With `keep_others`, or if an alias is
// refused, they replace only the old ones that are in `wanted`. An alias that is the name of a
// model is refused.
std::vector<ReloadReport::Refused> use_aliases(ServedModels& models,
                                               const std::vector<ModelConfig>& wanted,
                                               const std::vector<std::string>& names,
                                               bool keep_others);

}  // namespace runnel
