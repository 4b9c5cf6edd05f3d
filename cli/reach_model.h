// Connects a command to its server, and finds the model.
#pragma once

#include <string>
#include <variant>

#include "cli/console.h"
#include "cli/interrupt.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {

// Connects, and lists the models. If that fails, writes a line to err and returns the exit code.
std::variant<v1::ListModelsResponse, int> reach_models(Client& client, const Interrupt& interrupt,
                                                       Console& console);

// Does the same, and finds the model `name`. If `name` is empty, the only model.
std::variant<ModelView, int> reach_model(Client& client, const std::string& name,
                                         const Interrupt& interrupt, Console& console);

}  // namespace runnel
