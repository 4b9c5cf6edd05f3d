#include "cli/reach_model.h"

#include <utility>

namespace runnel {
namespace {

constexpr Seconds kConnect{10};

}  // namespace

std::variant<ModelView, int> reach_model(Client& client, const std::string& name,
                                         const Interrupt& interrupt, Console& console) {
  grpc::Status status = client.connect(kConnect);
  v1::ListModelsResponse models;
  if (status.ok()) status = client.list_models(models);
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!status.ok()) return fail(console, kExitFailed, call_error(status));
  Result<ModelView> model = choose_model(models, name);
  if (!model.ok()) return fail(console, kExitUsage, model.status().message());
  return std::move(*model);
}

}  // namespace runnel
