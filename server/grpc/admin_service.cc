#include <functional>
#include <span>

#include "runnel/v1/admin.grpc.pb.h"
#include "server/grpc/services.h"
#include "server/grpc/unary_call.h"

namespace runnel {
namespace {

using AdminBase = v1::Admin::WithRawCallbackMethod_Reload<v1::Admin::Service>;

constexpr int64_t kReportBytes = 1 << 20;  // a report as it is, as a message, and encoded

v1::ReloadResponse report_message(const ReloadReport& report) {
  v1::ReloadResponse message;
  const auto fill = [](auto* to, std::span<const std::string> names) {
    to->Add(names.begin(), names.end());
  };
  fill(message.mutable_added(), report.added);
  fill(message.mutable_replaced(), report.replaced);
  fill(message.mutable_retired(), report.retired);
  fill(message.mutable_kept(), report.kept);
  fill(message.mutable_needs_restart(), report.needs_restart);
  for (const ReloadReport::Refused& refused : report.refused) {
    v1::ReloadResponse::Refused& to = *message.add_refused();
    to.set_model(refused.model);
    to.set_reason(refused.reason);
  }
  return message;
}

// Without keys, any user of the machine could call this. The operator can send SIGHUP instead.
Status check_admin(const Caller& caller) {
  if (caller.admin) return {};
  return {Code::kPermissionDenied,
          "this needs a key that is marked admin: make one with 'runnel key new NAME --admin' in "
          "the server's file of keys (--keys); or send SIGHUP to a server with a config file"};
}

class AdminService final : public AdminBase {
 public:
  explicit AdminService(ServerContext& state) : state_(state) {}

  grpc::ServerUnaryReactor* Reload(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return UnaryCall::start("Reload", state_, *context, *request, *response,
                            [this](UnaryCall& call) { return reload(call); });
  }

 private:
  // OK if the answer will come; otherwise the call has yet to be refused.
  Status reload(UnaryCall& call) const {
    if (Status s = check_admin(call.caller()); !s.ok()) return s;
    if (Status s = state_.models.ready(); !s.ok()) return s;
    if (const auto request = call.parse<v1::ReloadRequest>(); !request.ok()) {
      return request.status();
    }
    if (Status s = call.reserve(kReportBytes); !s.ok()) return s;
    if (!state_.reload) {
      return {Code::kFailedPrecondition, "this server has no configuration to read again"};
    }
    return state_.reload(
        [kept = call.shared_from_this(), &call](const Result<ReloadReport>& report) {
          kept->answer_later([&call, report] {
            if (report.ok()) call.answer(Result(report_message(*report)));
            return report.status();
          });
        });
  }

  ServerContext& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_admin_service(ServerContext& state) {
  return std::make_unique<AdminService>(state);
}

}  // namespace runnel
