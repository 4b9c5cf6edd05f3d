#include <functional>
#include <utility>

#include "base/limits.h"
#include "runnel/v1/sessions.grpc.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/export_reactor.h"
#include "server/grpc/import_reactor.h"
#include "server/grpc/page_token.h"
#include "server/grpc/services.h"
#include "server/grpc/unary_call.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

using Base = v1::Sessions::WithRawCallbackMethod_CreateSession<
    v1::Sessions::WithRawCallbackMethod_GetSession<v1::Sessions::WithRawCallbackMethod_ListSessions<
        v1::Sessions::WithRawCallbackMethod_DeleteSession<
            v1::Sessions::WithRawCallbackMethod_ForkSession<
                v1::Sessions::WithRawCallbackMethod_RewindSession<
                    v1::Sessions::WithRawCallbackMethod_ExportSession<
                        v1::Sessions::WithRawCallbackMethod_ImportSession<
                            v1::Sessions::WithRawCallbackMethod_ListStates<
                                v1::Sessions::Service>>>>>>>>>;

constexpr int kDefaultPage = 100;
constexpr int kLargestPage = 1000;
constexpr int64_t kEntryBytes = 1024;  // of a page: as the engine has it, as a message, encoded

v1::ListSessionsResponse page_message(const SessionPage& page, const ServedModel& model) {
  v1::ListSessionsResponse message;
  for (const SessionInfo& session : page.sessions) {
    *message.add_sessions() = session_message(session, model);
  }
  if (!page.next.empty()) message.set_next_page_token(make_page_token(model.name, page.next));
  return message;
}

Result<int> page_size_of(const v1::ListSessionsRequest& request) {
  if (request.page_size() < 0 || request.page_size() > kLargestPage) {
    return invalid_argument("page_size is " + std::to_string(request.page_size()) +
                            "; it must be between 0 (for " + std::to_string(kDefaultPage) +
                            ") and " + std::to_string(kLargestPage));
  }
  return request.page_size() == 0 ? kDefaultPage : request.page_size();
}

// The names of the children; empty ones where the server chooses. The engine knows how many there
// may be: here only as many as memory is taken for.
Result<std::vector<std::string>> children_of(const v1::ForkSessionRequest& request) {
  if (request.children_size() > 0 && request.has_count()) {
    return invalid_argument("children and count are both set; name the children or count them");
  }
  if (request.children_size() > 0) {
    return std::vector<std::string>(request.children().begin(), request.children().end());
  }
  const int64_t count = request.has_count() ? request.count() : 1;
  if (count < 1 || count > limits::kSamples.max) {
    return invalid_argument("count is " + std::to_string(count) + "; it must be between 1 and " +
                            std::to_string(limits::kSamples.max));
  }
  return std::vector<std::string>(static_cast<size_t>(count));
}

v1::ForkSessionResponse fork_message(const std::vector<SessionInfo>& sessions,
                                     const ServedModel& model) {
  v1::ForkSessionResponse message;
  for (const SessionInfo& session : sessions) {
    *message.add_sessions() = session_message(session, model);
  }
  return message;
}

class SessionService final : public Base {
 public:
  explicit SessionService(ServerState& state) : state_(state) {}

  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return start("CreateSession", *context, *request, *response,
                 [this](UnaryCall& call) { return create(call); });
  }

  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return start("GetSession", *context, *request, *response,
                 [this](UnaryCall& call) { return get(call); });
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override {
    return start("ListSessions", *context, *request, *response,
                 [this](UnaryCall& call) { return list(call); });
  }

  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return start("DeleteSession", *context, *request, *response,
                 [this](UnaryCall& call) { return remove(call); });
  }

  grpc::ServerUnaryReactor* ForkSession(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    return start("ForkSession", *context, *request, *response,
                 [this](UnaryCall& call) { return fork(call); });
  }

  grpc::ServerUnaryReactor* RewindSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    return start("RewindSession", *context, *request, *response,
                 [this](UnaryCall& call) { return rewind(call); });
  }

  grpc::ServerUnaryReactor* ListStates(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return start("ListStates", *context, *request, *response,
                 [this](UnaryCall& call) { return states(call); });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* ExportSession(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override {
    return start_export(state_, *context, *request);
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* ImportSession(grpc::CallbackServerContext* context,
                                                           grpc::ByteBuffer* response) override {
    return start_import(state_, *context, *response);
  }

 private:
  grpc::ServerUnaryReactor* start(const char* rpc, grpc::CallbackServerContext& context,
                                  const grpc::ByteBuffer& request, grpc::ByteBuffer& response,
                                  const std::function<Status(UnaryCall&)>& begin) {
    return UnaryCall::start(rpc, state_, context, request, response, begin);
  }

  // Each: OK when the engine will answer, or has; otherwise the call is still to be refused.

  Status create(UnaryCall& call) const {
    const auto request = call.parse<v1::CreateSessionRequest>();
    if (!request.ok()) return request.status();
    const Caller& caller = call.caller();
    const auto model = call.find_model(request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->create_session(caller, request->id(), reply(call, *model));
    return {};
  }

  Status get(UnaryCall& call) const {
    const auto request = call.parse<v1::GetSessionRequest>();
    if (!request.ok()) return request.status();
    const Caller& caller = call.caller();
    const auto model = call.find_model(request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->get_session({caller.name, request->id()}, reply(call, *model));
    return {};
  }

  Status list(UnaryCall& call) const {
    const auto request = call.parse<v1::ListSessionsRequest>();
    if (!request.ok()) return request.status();
    const Caller& caller = call.caller();
    const auto found = call.find_model(request->model());
    if (!found.ok()) return found.status();
    const Result<int> size = page_size_of(*request);
    if (!size.ok()) return size.status();
    auto after = read_page_token((*found)->name, request->page_token());
    if (!after.ok()) return after.status();
    if (Status s = call.reserve(*size * kEntryBytes); !s.ok()) return s;
    (*found)->engine->list_sessions(
        caller.name, std::move(*after), *size,
        [kept = call.shared_from_this(), model = *found](Result<SessionPage> page) {
          kept->answer_later(std::move(page), [model](const SessionPage& entries) {
            return page_message(entries, *model);
          });
        });
    return {};
  }

  Status remove(UnaryCall& call) const {
    const auto request = call.parse<v1::DeleteSessionRequest>();
    if (!request.ok()) return request.status();
    const Caller& caller = call.caller();
    const auto model = call.find_model(request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->delete_session(
        {caller.name, request->id()}, [kept = call.shared_from_this()](const Status& status) {
          using Outcome = Result<v1::DeleteSessionResponse>;
          kept->answer_later(status.ok() ? Outcome(v1::DeleteSessionResponse()) : Outcome(status),
                             std::identity());
        });
    return {};
  }

  Status fork(UnaryCall& call) const {
    const auto request = call.parse<v1::ForkSessionRequest>();
    if (!request.ok()) return request.status();
    const auto model = call.find_model(request->model());
    if (!model.ok()) return model.status();
    auto children = children_of(*request);
    if (!children.ok()) return children.status();
    if (Status s = call.reserve(std::ssize(*children) * kEntryBytes); !s.ok()) return s;
    (*model)->engine->fork_session(
        call.caller(), request->id(), std::move(*children),
        [kept = call.shared_from_this(), model = *model](Result<std::vector<SessionInfo>> made) {
          kept->answer_later(std::move(made), [model](const std::vector<SessionInfo>& sessions) {
            return fork_message(sessions, *model);
          });
        });
    return {};
  }

  Status rewind(UnaryCall& call) const {
    const auto request = call.parse<v1::RewindSessionRequest>();
    if (!request.ok()) return request.status();
    const auto model = call.find_model(request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->rewind_session(
        call.caller(), request->id(), request->position(),
        [kept = call.shared_from_this(), model = *model](Result<std::vector<SessionInfo>> stands) {
          kept->answer_later(std::move(stands), [model](const std::vector<SessionInfo>& sessions) {
            return session_message(sessions[0], *model);
          });
        });
    return {};
  }

  Status states(UnaryCall& call) const {
    const auto request = call.parse<v1::ListStatesRequest>();
    if (!request.ok()) return request.status();
    const auto model = state_.models.find(call.caller(), request->model());
    if (!model.ok()) return model.status();
    if (Status s = call.reserve(std::ssize((*model)->states) * kEntryBytes); !s.ok()) return s;
    v1::ListStatesResponse message;
    for (const StoredState& stored : (*model)->states) {
      v1::StoredState& state = *message.add_states();
      state.set_name(stored.name);
      state.set_position(stored.position);
      state.set_numerics(stored.numerics);
    }
    call.answer(Result<v1::ListStatesResponse>(std::move(message)));
    return {};
  }

  static std::function<void(Result<SessionInfo>)> reply(UnaryCall& call,
                                                        std::shared_ptr<const ServedModel> model) {
    return [kept = call.shared_from_this(), model = std::move(model)](Result<SessionInfo> session) {
      kept->answer_later(std::move(session), [model](const SessionInfo& info) {
        return session_message(info, *model);
      });
    };
  }

  ServerState& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_session_service(ServerState& state) {
  return std::make_unique<SessionService>(state);
}

}  // namespace runnel
