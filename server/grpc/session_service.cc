#include <functional>
#include <utility>

#include "runnel/v1/sessions.grpc.pb.h"
#include "server/calls/session_calls.h"
#include "server/grpc/convert.h"
#include "server/grpc/export_reactor.h"
#include "server/grpc/import_reactor.h"
#include "server/grpc/page_token.h"
#include "server/grpc/services.h"
#include "server/grpc/unary_call.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

using SessionsBase = v1::Sessions::WithRawCallbackMethod_CreateSession<
    v1::Sessions::WithRawCallbackMethod_GetSession<v1::Sessions::WithRawCallbackMethod_ListSessions<
        v1::Sessions::WithRawCallbackMethod_DeleteSession<
            v1::Sessions::WithRawCallbackMethod_ForkSession<
                v1::Sessions::WithRawCallbackMethod_RewindSession<
                    v1::Sessions::WithRawCallbackMethod_ExportSession<
                        v1::Sessions::WithRawCallbackMethod_ImportSession<
                            v1::Sessions::WithRawCallbackMethod_ListStates<
                                v1::Sessions::Service>>>>>>>>>;

constexpr int64_t kEntryBytes = 1024;  // of a stored state: as a message, and encoded

v1::ListSessionsResponse page_message(const SessionPage& page, const ServedModel& model) {
  v1::ListSessionsResponse message;
  for (const SessionInfo& session : page.sessions) {
    *message.add_sessions() = session_message(session, model);
  }
  if (!page.next.empty()) message.set_next_page_token(make_page_token(model.name, page.next));
  return message;
}

v1::ForkSessionResponse fork_message(const std::vector<SessionInfo>& sessions,
                                     const ServedModel& model) {
  v1::ForkSessionResponse message;
  for (const SessionInfo& session : sessions) {
    *message.add_sessions() = session_message(session, model);
  }
  return message;
}

class SessionService final : public SessionsBase {
 public:
  explicit SessionService(ServerContext& state) : state_(state) {}

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

  // Each returns OK if the engine will answer or has answered. Otherwise the call has yet to be
  // refused.

  Status create(UnaryCall& call) const {
    const auto request = call.parse<v1::CreateSessionRequest>();
    if (!request.ok()) return request.status();
    return create_session(call, request->model(), request->id(), one(call));
  }

  Status get(UnaryCall& call) const {
    const auto request = call.parse<v1::GetSessionRequest>();
    if (!request.ok()) return request.status();
    return get_session(call, request->model(), request->id(), one(call));
  }

  Status list(UnaryCall& call) const {
    const auto request = call.parse<v1::ListSessionsRequest>();
    if (!request.ok()) return request.status();
    const auto after = [&](const std::string& model) {
      return read_page_token(model, request->page_token());
    };
    return list_sessions(call, request->model(), request->page_size(), after,
                         [&call](const SessionPage& page, const ServedModel& model) {
                           call.answer(Result(page_message(page, model)));
                         });
  }

  Status remove(UnaryCall& call) const {
    const auto request = call.parse<v1::DeleteSessionRequest>();
    if (!request.ok()) return request.status();
    return delete_session(call, request->model(), request->id(),
                          [&call] { call.answer(Result(v1::DeleteSessionResponse())); });
  }

  Status fork(UnaryCall& call) const {
    const auto request = call.parse<v1::ForkSessionRequest>();
    if (!request.ok()) return request.status();
    std::optional<int64_t> count;
    if (request->has_count()) count = request->count();
    return fork_session(call, request->model(), request->id(),
                        {request->children().begin(), request->children().end()}, count,
                        [&call](const std::vector<SessionInfo>& made, const ServedModel& model) {
                          if (made.size() == 1) call.name_session(made[0].key.id);
                          call.answer(Result(fork_message(made, model)));
                        });
  }

  Status rewind(UnaryCall& call) const {
    const auto request = call.parse<v1::RewindSessionRequest>();
    if (!request.ok()) return request.status();
    return rewind_session(call, request->model(), request->id(), request->position(), one(call));
  }

  Status states(UnaryCall& call) const {
    const auto request = call.parse<v1::ListStatesRequest>();
    if (!request.ok()) return request.status();
    const auto model = call.find_model(request->model());
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

  // Answers with one session. The call lives until its answer has been sent.
  static SessionReply one(UnaryCall& call) {
    return [&call](const SessionInfo& session, const ServedModel& model) {
      call.name_session(session.key.id);
      call.answer(Result(session_message(session, model)));
    };
  }

  ServerContext& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_session_service(ServerContext& state) {
  return std::make_unique<SessionService>(state);
}

}  // namespace runnel
