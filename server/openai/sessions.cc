#include "server/openai/sessions.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "base/limits.h"
#include "server/openai/header_text.h"
#include "server/openai/later_call.h"
#include "server/openai/request_fields.h"
#include "server/openai/session_json.h"
#include "server/openai/session_state.h"

namespace runnel {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kLargestPage = 1000;
constexpr int64_t kEntryBytes =
    1024;  // of a session in an answer: as the engine has it, and as text
// Of a body, as JSON and as names.
constexpr int64_t kParsedPerByte = 64;
constexpr int64_t kParsedAnyway = 64 << 10;

using Model = std::shared_ptr<const ServedModel>;

OrderedJson sessions_json(const std::vector<SessionInfo>& sessions, const ServedModel& model,
                          bool has_more) {
  OrderedJson data = OrderedJson::array();
  for (const SessionInfo& session : sessions) data.push_back(session_json(session, model));
  return {{"object", "list"}, {"data", std::move(data)}, {"has_more", has_more}};
}

Result<Json> read_body(LaterCall& call, const HttpRequest& request) {
  const int64_t bytes = kParsedAnyway + kParsedPerByte * std::ssize(request.body);
  if (Status s = call.reserve(bytes); !s.ok()) return s;
  return parse_body(request.body);
}

// Answers with the one session.
std::function<void(Result<SessionInfo>)> answer_of(LaterCall& call, Model model) {
  return [kept = call.shared_from_this(), model = std::move(model)](Result<SessionInfo> session) {
    kept->answer_later(std::move(session),
                       [model](const SessionInfo& info) { return session_json(info, *model); });
  };
}

// Each: OK when the engine will answer.

Fault create(LaterCall& call, const HttpRequest& request) {
  const Result<Json> body = read_body(call, request);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string name = fields.text("model").value_or("");
  const std::string id = fields.text("id").value_or("");
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  const auto model = call.find_model(name);
  if (!model.ok()) return {model.status(), "model"};
  (*model)->engine->create_session(call.caller(), id, answer_of(call, *model));
  return {};
}

Fault get(LaterCall& call, const HttpRequest& request) {
  const auto model = call.find_model(query_of(request.target, "model"));
  if (!model.ok()) return {model.status(), "model"};
  (*model)->engine->get_session({call.caller().name, unescaped(request.part)},
                                answer_of(call, *model));
  return {};
}

Fault list(LaterCall& call, const HttpRequest& request) {
  const auto found = call.find_model(query_of(request.target, "model"));
  if (!found.ok()) return {found.status(), "model"};
  const std::string limit = query_of(request.target, "limit");
  int count = limit.empty() ? kDefaultPage : 0;
  std::from_chars(limit.data(), limit.data() + limit.size(), count);
  if (count < 1 || count > kLargestPage) {
    return {invalid_argument("limit must be between 1 and " + std::to_string(kLargestPage)),
            "limit"};
  }
  if (Status s = call.reserve(count * kEntryBytes); !s.ok()) return {s};
  (*found)->engine->list_sessions(
      call.caller().name, query_of(request.target, "after"), count,
      [kept = call.shared_from_this(), model = *found](Result<SessionPage> page) {
        kept->answer_later(std::move(page), [model](const SessionPage& entries) {
          return sessions_json(entries.sessions, *model, !entries.next.empty());
        });
      });
  return {};
}

Fault remove(LaterCall& call, const HttpRequest& request) {
  const auto model = call.find_model(query_of(request.target, "model"));
  if (!model.ok()) return {model.status(), "model"};
  const std::string id = unescaped(request.part);
  (*model)->engine->delete_session({call.caller().name, id}, [kept = call.shared_from_this(),
                                                              id](const Status& status) {
    kept->answer_later(status.ok() ? Result<std::string>(id) : Result<std::string>(status),
                       [](const std::string& gone) {
                         return OrderedJson{{"id", gone}, {"object", "session"}, {"deleted", true}};
                       });
  });
  return {};
}

// The names of the children; empty ones where the engine is to choose.
std::vector<std::string> children_of(RequestFields& fields) {
  const Json* const named = fields.find("children");
  const auto count = fields.integer("count", 1, limits::kSamples.max);
  if (named == nullptr) return std::vector<std::string>(static_cast<size_t>(count.value_or(1)));
  if (count) fields.refuse("count", "and children are both set; name the children or count them");
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
  const Result<Json> body = read_body(call, request);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string name = fields.text("model").value_or("");
  std::vector<std::string> children = children_of(fields);
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  const auto found = call.find_model(name);
  if (!found.ok()) return {found.status(), "model"};
  if (Status s = call.reserve(std::ssize(children) * kEntryBytes); !s.ok()) return {s};
  (*found)->engine->fork_session(
      call.caller(), unescaped(request.part), std::move(children),
      [kept = call.shared_from_this(), model = *found](Result<std::vector<SessionInfo>> made) {
        kept->answer_later(std::move(made), [model](const std::vector<SessionInfo>& sessions) {
          return sessions_json(sessions, *model, false);
        });
      });
  return {};
}

Fault rewind(LaterCall& call, const HttpRequest& request) {
  const Result<Json> body = read_body(call, request);
  if (!body.ok()) return {body.status()};
  RequestFields fields(*body);
  const std::string name = fields.text("model").value_or("");
  const auto position = fields.integer("position", 0, std::numeric_limits<int64_t>::max());
  if (!position) fields.refuse("position", "is not set; expected where the session is to stand");
  if (Fault fault = fields.end(); !fault.ok()) return fault;
  const auto found = call.find_model(name);
  if (!found.ok()) return {found.status(), "model"};
  (*found)->engine->rewind_session(
      call.caller(), unescaped(request.part), *position,
      [kept = call.shared_from_this(), model = *found](Result<std::vector<SessionInfo>> stands) {
        kept->answer_later(std::move(stands), [model](const std::vector<SessionInfo>& sessions) {
          return session_json(sessions[0], *model);
        });
      });
  return {};
}

}  // namespace

std::vector<HttpRoute> session_routes(ServerState& state, const Gate& gate) {
  const auto route = [&](const char* method, const char* path, const char* rpc,
                         LaterCall::Begin begin) {
    return HttpRoute{method, path, gate.guard(LaterCall::handler(state, rpc, std::move(begin)))};
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
