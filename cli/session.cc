#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/field_flags.h"
#include "cli/interrupt.h"
#include "cli/transcript.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {
namespace {

constexpr int kPage = 1000;
constexpr int kMostPages = 10000;

// INTERNAL if the server names pages without end.
Status list_all(Client& client, const std::string& model, std::vector<v1::Session>& all) {
  v1::ListSessionsRequest request;
  request.set_model(model);
  request.set_page_size(kPage);
  for (int pages = 0; pages < kMostPages; ++pages) {
    v1::ListSessionsResponse page;
    if (Status status = client.list_sessions(request, page); !status.ok()) return status;
    all.insert(all.end(), page.sessions().begin(), page.sessions().end());
    if (page.next_page_token().empty()) return {};
    if (page.next_page_token() == request.page_token()) {
      return {Code::kInternal,
              "the server's list of sessions has no end: a page names itself as the next one"};
    }
    request.set_page_token(page.next_page_token());
  }
  return {Code::kInternal,
          "the server's list of sessions has more than " + with_commas(kMostPages) + " pages"};
}

void print_sessions(const std::vector<v1::Session>& sessions, Console& console) {
  size_t width = 0;
  for (const v1::Session& one : sessions) width = std::max(width, one.id().size());
  for (const v1::Session& one : sessions) {
    console.out << tame(one.id()) << std::string(width + 2 - one.id().size(), ' ') << "position "
                << with_commas(one.position()) << ", " << v1::Session::State_Name(one.state())
                << ", idle for " << fixed(seconds_of(one.idle()), 0) << " s\n";
  }
  if (sessions.empty()) console.out << "no sessions\n";
}

OrderedJson session_json(const std::string& model, const v1::Session& session) {
  return {{"model", model},
          {"id", session.id()},
          {"position", session.position()},
          {"state", v1::Session::State_Name(session.state())},
          {"state_bytes", session.state_bytes()},
          {"idle_seconds", seconds_of(session.idle())}};
}

// Reports a call that has failed, or that an interrupt has ended. Returns the exit code.
int fail_call(const Status& status, const Interrupt& interrupt, Console& console) {
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  return fail(console, kExitFailed, call_error(in_flags(status, session_flag)));
}

// Lists the sessions of the named models, under a heading each if there are several models.
int list(const SessionOptions& options, const std::vector<std::string>& models, Client& client,
         const Interrupt& interrupt, Console& console) {
  OrderedJson out = {{"sessions", OrderedJson::array()}};
  if (models.size() == 1) out["model"] = models.front();
  for (const std::string& model : models) {
    std::vector<v1::Session> sessions;
    const Status status = list_all(client, model, sessions);
    if (!status.ok()) return fail_call(status, interrupt, console);
    for (const v1::Session& one : sessions) out["sessions"].push_back(session_json(model, one));
    if (options.json) continue;
    if (models.size() > 1) console.out << tame(model) << ":\n";
    print_sessions(sessions, console);
  }
  if (options.json) console.out << json_text(out) << '\n';
  return kExitOk;
}

// Shows every named session, even if some of them cannot be shown.
int show_each(const SessionOptions& options, const std::string& model, Client& client,
              const Interrupt& interrupt, Console& console) {
  int code = kExitOk;
  OrderedJson out = {{"sessions", OrderedJson::array()}, {"model", model}};
  std::vector<v1::Session> found;
  for (const std::string& id : options.ids) {
    v1::Session session;
    const Status status = client.get_session(model, id, session);
    if (!status.ok()) {
      code = fail_call(status, interrupt, console);
      if (code == kExitInterrupted) return code;
      continue;
    }
    out["sessions"].push_back(session_json(model, session));
    found.push_back(session);
  }
  if (options.json) {
    console.out << json_text(out) << '\n';
  } else if (!found.empty()) {
    print_sessions(found, console);
  }
  return code;
}

// Deletes every named session, even if deleting some of them fails.
int delete_each(const SessionOptions& options, const std::string& model, Client& client,
                const Interrupt& interrupt, Console& console) {
  int code = kExitOk;
  for (const std::string& id : options.ids) {
    const Status status = client.delete_session(model, id);
    if (status.ok()) continue;
    code = fail_call(status, interrupt, console);
    if (code == kExitInterrupted) return code;
  }
  return code;
}

}  // namespace

int run_session(const SessionOptions& options, Console& console) {
  Client client(options.server, Seconds(options.timeout));
  const Interrupt interrupt([&] { client.cancel(); });
  if (Status usable = client.open(); !usable.ok()) {
    return fail(console, kExitUsage, usable.message());
  }
  Status status = client.connect(Seconds(options.timeout));
  v1::ListModelsResponse models;
  if (status.ok()) status = client.list_models(models);
  if (!status.ok() || interrupt.fired()) return fail_call(status, interrupt, console);
  if (options.ids.empty() && options.model.empty()) {
    std::vector<std::string> all;
    for (const v1::ModelInfo& model : models.models()) all.push_back(model.name());
    return list(options, all, client, interrupt, console);
  }
  const Result<ModelView> model = choose_model(models, options.model);
  if (!model.ok()) return fail(console, kExitUsage, model.status().message());
  if (options.ids.empty()) return list(options, {model->name}, client, interrupt, console);
  return options.shows ? show_each(options, model->name, client, interrupt, console)
                       : delete_each(options, model->name, client, interrupt, console);
}

}  // namespace runnel
