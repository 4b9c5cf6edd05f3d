// How a command that calls a server begins.
#pragma once

#include <string>
#include <variant>

#include "cli/console.h"
#include "cli/interrupt.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {

// Connects, and asks for the models. Where that fails: the exit code, after a line on err.
std::variant<v1::ListModelsResponse, int> reach_models(Client& client, const Interrupt& interrupt,
                                                       Console& console);

// The same, and finds the model called `name`, or the only one where `name` is empty.
std::variant<ModelView, int> reach_model(Client& client, const std::string& name,
                                         const Interrupt& interrupt, Console& console);

}  // namespace runnel
