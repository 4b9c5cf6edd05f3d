#include "server/rest/sessions.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/limits.h"
#include "server/calls/session_calls.h"
#include "server/http/header_text.h"
#include "server/http/later_call.h"
#include "server/http/read_aside.h"
#include "server/http/request_fields.h"
#include "server/rest/json_body.h"
#include "server/rest/session_json.h"
#include "server/rest/session_state.h"
#include "server/rest/words.h"

namespace runnel {
namespace {

OrderedJson sessions_json(const std::vector<SessionInfo>& sessions, const ServedModel& model,
                          bool has_more) {
  OrderedJson data = OrderedJson::array();
  for (const SessionInfo& session : sessions) data.push_back(session_json(session, model));
  return {{"object", "list"}, {"data", std::move(data)}, {"has_more", has_more}};
}

// Answers with one session. The call lives until its answer has been sent.
SessionReply one(LaterCall& call) {
  return [&call](const SessionInfo& session, const ServedModel& model) {
    call.name_session(session.key.id);
    call.answer(session_json(session, model));
  };
}

// Each returns OK if the engine will answer.

Fault create(LaterCall& call, const HttpRequest& request) {
  const Result<Json> body = read_body(call, request.body);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  const std::string id = fields.text("id").value_or("");
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  return rest_fault(create_session(call, model, id, one(call)));
}

Fault get(LaterCall& call, const HttpRequest& request) {
  return rest_fault(
      get_session(call, query_of(request.target, "model"), unescaped(request.part), one(call)));
}

Fault list(LaterCall& call, const HttpRequest& request) {
  const auto limit = query_number(request.target, "limit", 1, kLargestPage);
  if (!limit.ok()) return {limit.status(), "limit"};
  const auto after = [&](const std::string&) {
    return Result<std::string>(query_of(request.target, "after"));
  };
  return rest_fault(
      list_sessions(call, query_of(request.target, "model"), limit->value_or(0), after,
                    [&call](const SessionPage& page, const ServedModel& model) {
                      OrderedJson answer = sessions_json(page.sessions, model, !page.next.empty());
                      // Sessions that have just ended are left out, so a page may be empty.
                      if (!page.next.empty()) answer["last_id"] = page.next;
                      call.answer(answer);
                    }));
}

Fault remove(LaterCall& call, const HttpRequest& request) {
  const std::string id = unescaped(request.part);
  return rest_fault(delete_session(call, query_of(request.target, "model"), id, [&call, id] {
    call.answer({{"id", id}, {"object", "session"}, {"deleted", true}});
  }));
}

// The names of a fork's children, if the request has any.
std::vector<std::string> children_of(RequestFields& fields) {
  const Json* const named = fields.find("children");
  if (named == nullptr) return {};
  std::vector<std::string> children;
  const bool are_names = named->is_array() && !named->empty() &&
                         std::ranges::all_of(*named, [](const Json& n) { return n.is_string(); });
  if (!are_names) fields.refuse("children", "must be a list of names");
  for (const Json& name : are_names ? *named : Json::array()) {
    children.push_back(name.get<std::string>());
  }
  return children;
}

Fault fork(LaterCall& call, const HttpRequest& request) {
  const Result<Json> body = read_body(call, request.body);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  std::vector<std::string> children = children_of(fields);
  const auto count = fields.integer("count", 1, limits::kSamples.max);
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  return rest_fault(
      fork_session(call, model, unescaped(request.part), std::move(children), count,
                   [&call](const std::vector<SessionInfo>& made, const ServedModel& served) {
                     if (made.size() == 1) call.name_session(made[0].key.id);
                     call.answer(sessions_json(made, served, false));
                   }));
}

Fault rewind(LaterCall& call, const HttpRequest& request) {
  const Result<Json> body = read_body(call, request.body);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string model = fields.text("model").value_or("");
  const auto position = fields.integer("position", 0, std::numeric_limits<int64_t>::max());
  if (!position) fields.refuse("position", "is not set; expected the position to go back to");
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  return rest_fault(rewind_session(call, model, unescaped(request.part), *position, one(call)));
}

}  // namespace

std::vector<HttpRoute> session_routes(ServerContext& state, const Gate& gate) {
  const auto route = [&](const char* method, const char* path, const char* rpc,
                         LaterCall::Begin begin) {
    return HttpRoute{
        method, path,
        gate.guard(read_aside(state, LaterCall::handler(state, rpc, rest_word, std::move(begin))))};
  };
  return {route("POST", "/v1/sessions", "CreateSession", create),
          route("GET", "/v1/sessions", "ListSessions", list),
          route("GET", "/v1/sessions/*", "GetSession", get),
          route("DELETE", "/v1/sessions/*", "DeleteSession", remove),
          route("POST", "/v1/sessions/*/fork", "ForkSession", fork),
          route("POST", "/v1/sessions/*/rewind", "RewindSession", rewind),
          export_route(state, gate),
          import_route(state, gate)};
}

}  // namespace runnel
