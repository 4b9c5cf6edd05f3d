#include "cli/reach_model.h"

#include <utility>

namespace runnel {
namespace {

constexpr Seconds kConnectTime{10};

}  // namespace

std::variant<v1::ListModelsResponse, int> reach_models(Client& client, const Interrupt& interrupt,
                                                       Console& console) {
  if (Status usable = client.open(); !usable.ok()) {
    return fail(console, kExitUsage, usable.message());
  }
  Status status = client.connect(kConnectTime);
  v1::ListModelsResponse models;
  if (status.ok()) status = client.list_models(models);
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!status.ok()) return fail(console, kExitFailed, call_error(status));
  return models;
}

std::variant<ModelView, int> reach_model(Client& client, const std::string& name,
                                         const Interrupt& interrupt, Console& console) {
  auto reached = reach_models(client, interrupt, console);
  if (const int* exit_code = std::get_if<int>(&reached)) return *exit_code;
  Result<ModelView> model = choose_model(std::get<v1::ListModelsResponse>(reached), name);
  if (!model.ok()) return fail(console, kExitUsage, model.status().message());
  return std::move(*model);
}

}  // namespace runnel
