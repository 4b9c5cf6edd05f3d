#include "bench/server_calls.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "client/stubs.h"

namespace runnel {
namespace {

constexpr int kStreamsOfAConnection = 100;  // the least that HTTP/2 recommends to servers

// One call, which reads as fast as it can. Owns itself until it has ended.
class Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  static void start(v1::Inference::Stub& stub, v1::GenerateRequest request,
                    std::shared_ptr<Tally> tally) {
    const auto call = std::make_shared<Call>(std::move(request), std::move(tally));
    call->self_ = call;
    stub.async()->Generate(&call->context_, &call->request_, call.get());
    call->StartRead(&call->response_);
    call->StartCall();
  }

  Call(v1::GenerateRequest request, std::shared_ptr<Tally> tally)
      : request_(std::move(request)), tally_(std::move(tally)) {}

  void OnReadDone(bool ok) override {
    if (!ok) return;
    int64_t values = 0;
    for (const v1::ValueRun& run : response_.values().runs()) values += run.values_size();
    tally_->add(values);
    StartRead(&response_);
  }

  // Destroys the call before the tally hears of its end. The call's context holds the channel,
  // whose last owner must not be one of gRPC's threads: the thread would have to wait for itself.
  void OnDone(const grpc::Status& done) override {
    const std::shared_ptr<Tally> tally = tally_;
    const Status status =
        done.ok() ? Status() : Status(static_cast<Code>(done.error_code()), done.error_message());
    self_.reset();
    tally->end(status);
  }

 private:
  std::shared_ptr<Call> self_;
  grpc::ClientContext context_;
  const v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  const std::shared_ptr<Tally> tally_;
};

}  // namespace

Result<std::shared_ptr<const Stubs>> connect_for(const Access& access, int streams) {
  return connect_times(access, (streams + kStreamsOfAConnection - 1) / kStreamsOfAConnection);
}

Result<double> run_on_server(const Stubs& stubs, const ModelView& model, const Work& work,
                             const OnValues& on_values) {
  v1::GenerateRequest request;
  request.set_model(model.name);
  request.set_samples(work.samples);
  request.set_max_values(work.values);
  request.set_ignore_eos(true);  // each sample must have work.values values
  if (!model.has_begin) request.mutable_values()->add_values(0);
  const int64_t together = int64_t{kValuesTogether} * work.samples;
  request.mutable_delivery()->set_max_values(
      static_cast<int32_t>(std::min(together, limits::kDeliveryValues.max)));
  request.mutable_delivery()->mutable_max_delay()->set_seconds(kLongestWait.count());
  const auto tally = std::make_shared<Tally>(work);
  for (int call = 0; call < work.calls; ++call) {
    request.mutable_sampling()->set_seed(work.seed + static_cast<uint64_t>(call));
    Call::start(*stubs.inference[static_cast<size_t>(call) % stubs.inference.size()], request,
                tally);
  }
  return tally->wait(on_values);
}

}  // namespace runnel
