#include "runnel/v1/inference.grpc.pb.h"
#include "server/grpc/generate_reactor.h"
#include "server/grpc/score_reactor.h"
#include "server/grpc/services.h"

namespace runnel {
namespace {

using InferenceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_Score<v1::Inference::Service>>;

class InferenceService final : public InferenceBase {
 public:
  explicit InferenceService(ServerContext& state) : state_(state) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override {
    return start_generate(state_, *context, *request);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Score(
      grpc::CallbackServerContext* context) override {
    return start_score(state_, *context);
  }

 private:
  ServerContext& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_inference_service(ServerContext& state) {
  return std::make_unique<InferenceService>(state);
}

}  // namespace runnel
