#include "runnel/v1/models.grpc.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/services.h"
#include "server/grpc/unary_call.h"

namespace runnel {
namespace {

using ModelsBase = v1::Models::WithRawCallbackMethod_ListModels<
    v1::Models::WithRawCallbackMethod_GetModel<v1::Models::Service>>;

class ModelService final : public ModelsBase {
 public:
  explicit ModelService(ServerContext& state) : state_(state) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return UnaryCall::start("ListModels", state_, *context, *request, *response,
                            [this](UnaryCall& call) { return list(call); });
  }

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    return UnaryCall::start("GetModel", state_, *context, *request, *response,
                            [this](UnaryCall& call) { return get(call); });
  }

 private:
  // Each returns OK if it has answered. Otherwise the call has yet to be refused.

  Status list(UnaryCall& call) const {
    const auto request = call.parse<v1::ListModelsRequest>();
    if (!request.ok()) return request.status();
    if (Status s = state_.models.ready(); !s.ok()) return s;
    const auto models = state_.models.all_for(call.caller());
    int64_t bytes = 0;
    for (const auto& [name, model] : models) bytes += model->described_bytes;
    if (Status s = call.reserve(bytes); !s.ok()) return s;
    v1::ListModelsResponse response;
    for (const auto& [name, model] : models) {
      *response.add_models() = model_message(*model, state_.models.aliases_of(name));
    }
    call.answer(Result<v1::ListModelsResponse>(std::move(response)));
    return {};
  }

  Status get(UnaryCall& call) const {
    const auto request = call.parse<v1::GetModelRequest>();
    if (!request.ok()) return request.status();
    const auto model = call.find_model(request->name());
    if (!model.ok()) return model.status();
    if (Status s = call.reserve((*model)->described_bytes); !s.ok()) return s;
    const auto aliases = state_.models.aliases_of((*model)->name);
    call.answer(Result<v1::ModelInfo>(model_message(**model, aliases)));
    return {};
  }

  ServerContext& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_model_service(ServerContext& state) {
  return std::make_unique<ModelService>(state);
}

}  // namespace runnel
