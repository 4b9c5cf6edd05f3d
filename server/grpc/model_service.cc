#include "runnel/v1/models.grpc.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/services.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

using Base = v1::Models::WithRawCallbackMethod_ListModels<
    v1::Models::WithRawCallbackMethod_GetModel<v1::Models::Service>>;

class ModelService final : public Base {
 public:
  explicit ModelService(ServerState& state) : state_(state) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    finish_unary(list(*request, caller_of(state_, *context)), *context, *response, *reactor);
    return reactor;
  }

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    finish_unary(get(*request, caller_of(state_, *context)), *context, *response, *reactor);
    return reactor;
  }

 private:
  Result<v1::ListModelsResponse> list(const grpc::ByteBuffer& bytes,
                                      const Result<Caller>& caller) const {
    if (!caller.ok()) return caller.status();
    const auto request = parse_message<v1::ListModelsRequest>(bytes);
    if (!request.ok()) return request.status();
    if (Status s = state_.models.ready(); !s.ok()) return s;
    v1::ListModelsResponse response;
    for (const auto& [name, model] : state_.models.all_for(*caller)) {
      *response.add_models() = model_message(*model);
    }
    return response;
  }

  Result<v1::ModelInfo> get(const grpc::ByteBuffer& bytes, const Result<Caller>& caller) const {
    if (!caller.ok()) return caller.status();
    const auto request = parse_message<v1::GetModelRequest>(bytes);
    if (!request.ok()) return request.status();
    const auto model = state_.models.find(*caller, request->name());
    if (!model.ok()) return model.status();
    return model_message(**model);
  }

  ServerState& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_model_service(ServerState& state) {
  return std::make_unique<ModelService>(state);
}

}  // namespace runnel
