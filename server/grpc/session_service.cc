#include <utility>

#include "runnel/v1/sessions.grpc.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/page_token.h"
#include "server/grpc/services.h"
#include "server/grpc/wire.h"

namespace runnel {
namespace {

using Base = v1::Sessions::WithRawCallbackMethod_CreateSession<
    v1::Sessions::WithRawCallbackMethod_GetSession<v1::Sessions::WithRawCallbackMethod_ListSessions<
        v1::Sessions::WithRawCallbackMethod_DeleteSession<v1::Sessions::Service>>>>;

constexpr int kDefaultPage = 100;
constexpr int kLargestPage = 1000;

// A unary call that the scheduler answers: what is needed once it has.
struct Answer {
  grpc::CallbackServerContext* context;
  grpc::ByteBuffer* response;
  grpc::ServerUnaryReactor* reactor;

  template <typename Message>
  void finish(const Result<Message>& outcome) const {
    finish_unary(outcome, *context, *response, *reactor);
  }
  void refuse(const Status& status) const { finish(Result<v1::Session>(status)); }
};

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

class SessionService final : public Base {
 public:
  explicit SessionService(ServerState& state) : state_(state) {}

  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    const Answer answer{context, response, context->DefaultReactor()};
    if (Status s = create(*request, answer); !s.ok()) answer.refuse(s);
    return answer.reactor;
  }

  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    const Answer answer{context, response, context->DefaultReactor()};
    if (Status s = get(*request, answer); !s.ok()) answer.refuse(s);
    return answer.reactor;
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override {
    const Answer answer{context, response, context->DefaultReactor()};
    if (Status s = list(*request, answer); !s.ok()) answer.refuse(s);
    return answer.reactor;
  }

  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override {
    const Answer answer{context, response, context->DefaultReactor()};
    if (Status s = remove(*request, answer); !s.ok()) answer.refuse(s);
    return answer.reactor;
  }

 private:
  // Each: OK when the scheduler will answer, or has; otherwise the call is still to be refused.

  Status create(const grpc::ByteBuffer& bytes, const Answer& answer) const {
    const Result<Caller> caller = caller_of(state_, *answer.context);
    if (!caller.ok()) return caller.status();
    auto request = parse_message<v1::CreateSessionRequest>(bytes);
    if (!request.ok()) return request.status();
    const auto model = state_.models.find(*caller, request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->create_session({caller->name, request->id()}, reply(answer, *model));
    return {};
  }

  Status get(const grpc::ByteBuffer& bytes, const Answer& answer) const {
    const Result<Caller> caller = caller_of(state_, *answer.context);
    if (!caller.ok()) return caller.status();
    auto request = parse_message<v1::GetSessionRequest>(bytes);
    if (!request.ok()) return request.status();
    const auto model = state_.models.find(*caller, request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->get_session({caller->name, request->id()}, reply(answer, *model));
    return {};
  }

  Status list(const grpc::ByteBuffer& bytes, const Answer& answer) const {
    const Result<Caller> caller = caller_of(state_, *answer.context);
    if (!caller.ok()) return caller.status();
    const auto request = parse_message<v1::ListSessionsRequest>(bytes);
    if (!request.ok()) return request.status();
    const auto found = state_.models.find(*caller, request->model());
    if (!found.ok()) return found.status();
    const Result<int> size = page_size_of(*request);
    if (!size.ok()) return size.status();
    auto after = read_page_token((*found)->name, request->page_token());
    if (!after.ok()) return after.status();
    (*found)->engine->list_sessions(
        caller->name, std::move(*after), *size,
        [answer, model = *found](const Result<SessionPage>& page) {
          if (!page.ok()) return answer.refuse(page.status());
          answer.finish<v1::ListSessionsResponse>(page_message(*page, *model));
        });
    return {};
  }

  Status remove(const grpc::ByteBuffer& bytes, const Answer& answer) const {
    const Result<Caller> caller = caller_of(state_, *answer.context);
    if (!caller.ok()) return caller.status();
    const auto request = parse_message<v1::DeleteSessionRequest>(bytes);
    if (!request.ok()) return request.status();
    const auto model = state_.models.find(*caller, request->model());
    if (!model.ok()) return model.status();
    (*model)->engine->delete_session({caller->name, request->id()}, [answer](const Status& status) {
      if (!status.ok()) return answer.refuse(status);
      answer.finish<v1::DeleteSessionResponse>(v1::DeleteSessionResponse());
    });
    return {};
  }

  static std::function<void(Result<SessionInfo>)> reply(const Answer& answer,
                                                        std::shared_ptr<const ServedModel> model) {
    return [answer, model = std::move(model)](const Result<SessionInfo>& session) {
      if (!session.ok()) return answer.refuse(session.status());
      answer.finish<v1::Session>(session_message(*session, *model));
    };
  }

  ServerState& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_session_service(ServerState& state) {
  return std::make_unique<SessionService>(state);
}

}  // namespace runnel
