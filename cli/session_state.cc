#include "cli/session_state.h"

#include <functional>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/field_flags.h"
#include "cli/interrupt.h"
#include "client/client.h"
#include "client/model_choice.h"
#include "models/state/file.h"

namespace runnel {
namespace {

OrderedJson session_json(const v1::Session& session) {
  return {{"id", session.id()}, {"position", session.position()}};
}

// Connects, chooses the model and makes the call, then calls `shown` to report it. Errors name
// fields by `flag_of`.
int run_call(const SessionStateOptions& options, const FieldWord& flag_of, Console& console,
             const std::function<Status(Client&, const std::string& model)>& call,
             const std::function<int()>& shown) {
  Client client(options.server, Seconds(options.timeout));
  const Interrupt interrupt([&] { client.cancel(); });
  if (Status usable = client.open(); !usable.ok()) {
    return fail(console, kExitUsage, usable.message());
  }
  Status status = client.connect(Seconds(options.timeout));
  v1::ListModelsResponse models;
  if (status.ok()) status = client.list_models(models);
  if (status.ok()) {
    const Result<ModelView> model = choose_model(models, options.model);
    if (!model.ok()) return fail(console, kExitUsage, model.status().message());
    status = call(client, model->name);
  }
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!status.ok()) return fail(console, kExitFailed, call_error(in_flags(status, flag_of)));
  return shown();
}

// Reads the header of a file and checks the whole file. Without the key, the seal of a sealed file
// cannot be checked.
Result<StateHeader> inspect(const std::string& bytes) {
  StateReader reader(
      [&](const StateHeader& header) -> Result<StateLayout> {
        StateLayout layout = layout_of(header);
        if (layout.state_bytes <= std::ssize(bytes)) return layout;
        return invalid_argument("the state file ends too early: its parts are " +
                                with_commas(layout.state_bytes) + " bytes");
      },
      nullptr);
  if (Status s = reader.add(std::as_bytes(std::span(bytes))); !s.ok()) return s;
  if (const Result<StateImage> image = reader.finish(); !image.ok()) return image.status();
  return *reader.header();
}

// The terms of a seal, one per line.
std::string terms_text(const SealTerms& terms) {
  std::string text;
  if (!terms.owner.empty()) text += "\n  owner     " + tame(terms.owner);
  if (terms.issued != 0) text += "\n  issued    " + std::to_string(terms.issued);
  if (terms.expires != 0) text += "\n  expires   " + std::to_string(terms.expires);
  return text;
}

void print_header(const StateHeader& header, const std::string& path, Console& console) {
  console.out << tame(path) << "\n  digest    " << tame(header.model) << "\n  numerics  "
              << tame(header.numerics) << "\n  position  " << with_commas(header.position)
              << "\n  pending   "
              << (header.pending == kNoValue ? "none" : std::to_string(header.pending))
              << "\n  recent    " << with_commas(std::ssize(header.recent)) << " values"
              << "\n  seal      "
              << (header.key.empty() ? "none" : "with key " + tame(header.key) + ", not checked")
              << terms_text(header.terms) << "\n  state     "
              << with_commas(layout_of(header).state_bytes) << " bytes in " << header.parts.size()
              << " parts\n";
}

OrderedJson header_json(const StateHeader& header) {
  OrderedJson json = {{"model", header.model},
                      {"numerics", header.numerics},
                      {"position", header.position},
                      {"state_bytes", layout_of(header).state_bytes}};
  if (header.pending != kNoValue) json["pending"] = header.pending;
  if (!header.recent.empty()) json["recent"] = header.recent;
  if (!header.key.empty()) json["seal_key"] = header.key;
  if (!header.terms.owner.empty()) json["owner"] = header.terms.owner;
  if (header.terms.issued != 0) json["issued"] = header.terms.issued;
  if (header.terms.expires != 0) json["expires"] = header.terms.expires;
  json["parts"] = OrderedJson::array();
  for (const StatePart& part : header.parts) {
    json["parts"].push_back({{"name", part.name}, {"shape", part.shape}});
  }
  return json;
}

using Run = int (*)(const SessionStateOptions& options, Console& console);

}  // namespace

int run_session_fork(const SessionStateOptions& options, Console& console) {
  v1::ForkSessionResponse made;
  return run_call(
      options, session_flag, console,
      [&](Client& client, const std::string& model) {
        v1::ForkSessionRequest request;
        request.set_model(model);
        request.set_id(options.id);
        request.mutable_children()->Add(options.children.begin(), options.children.end());
        if (options.count) request.set_count(*options.count);
        return client.fork_session(request, made);
      },
      [&] {
        OrderedJson json = {{"sessions", OrderedJson::array()}};
        for (const v1::Session& session : made.sessions()) {
          json["sessions"].push_back(session_json(session));
          if (!options.json) console.out << tame(session.id()) << '\n';
        }
        if (options.json) console.out << json_text(json) << '\n';
        return kExitOk;
      });
}

int run_session_rewind(const SessionStateOptions& options, Console& console) {
  v1::Session session;
  return run_call(
      options, session_flag, console,
      [&](Client& client, const std::string& model) {
        v1::RewindSessionRequest request;
        request.set_model(model);
        request.set_id(options.id);
        request.set_position(options.position);
        return client.rewind_session(request, session);
      },
      [&] {
        if (options.json) {
          console.out << json_text(session_json(session)) << '\n';
        } else {
          console.out << tame(session.id()) << ": position " << with_commas(session.position())
                      << '\n';
        }
        return kExitOk;
      });
}

int run_session_save(const SessionStateOptions& options, Console& console) {
  if (Status s = check_writable(options.file); !s.ok()) {
    return fail(console, kExitUsage, s.message());
  }
  std::string bytes;
  const auto call = [&](Client& client, const std::string& model) {
    v1::ExportSessionRequest request;
    request.set_model(model);
    request.set_id(options.id);
    request.set_any_owner(options.any_owner);
    if (options.expires) request.mutable_expires_in()->set_seconds(*options.expires);
    return client.export_session(request, kMostStateFileBytes, bytes);
  };
  return run_call(options, session_flag, console, call, [&] {
    if (Status s = replace_file(options.file, bytes, kStateFileMode); !s.ok()) {
      return fail(console, kExitFailed, s.message());
    }
    console.out << tame(options.file) << ": " << with_commas(std::ssize(bytes)) << " bytes\n";
    return kExitOk;
  });
}

int run_session_load(const SessionStateOptions& options, Console& console) {
  const Result<std::string> bytes = read_file(options.file, kMostStateFileBytes);
  if (!bytes.ok()) return fail(console, kExitUsage, bytes.status().message());
  v1::Session session;
  return run_call(
      options, session_load_flag, console,
      [&](Client& client, const std::string& model) {
        v1::ImportTarget target;
        target.set_model(model);
        target.set_id(options.id);
        target.set_allow_inexact(options.allow_inexact);
        return client.import_session(target, *bytes, session);
      },
      [&] {
        if (options.json) {
          console.out << json_text(session_json(session)) << '\n';
        } else {
          console.out << tame(session.id()) << '\n';
        }
        return kExitOk;
      });
}

int run_session_inspect(const SessionStateOptions& options, Console& console) {
  const Result<std::string> bytes = read_file(options.file, kMostStateFileBytes);
  if (!bytes.ok()) return fail(console, kExitUsage, bytes.status().message());
  const Result<StateHeader> header = inspect(*bytes);
  if (!header.ok()) {
    return fail(console, kExitFailed, options.file + ": " + header.status().message());
  }
  if (options.json) {
    console.out << json_text(header_json(*header)) << '\n';
  } else {
    print_header(*header, options.file, console);
  }
  return kExitOk;
}

void add_session_state_commands(const Command& session) {
  const auto add = [&](const char* name, const char* what, bool calls, Run run) {
    const auto options = std::make_shared<SessionStateOptions>();
    const Command command = session.command(name, what);
    if (calls) {
      add_server(command, options->server);
      add_model(command, options->model);
      add_timeout(command, options->timeout, "that the call may take");
    }
    command.runs([options, run](Console& console) { return run(*options, console); });
    return std::pair(command, options);
  };
  const auto [fork, forked] =
      add("fork", "Make new sessions at the position of a session, which is kept", true,
          run_session_fork);
  fork.flag("id", forked->id, "Name of the session").required();
  const Flag children = fork.flag("children", forked->children, "Names of the new sessions");
  fork.flag("--count,-n", forked->count,
            "Number of new sessions with names that the server chooses (default: 1)")
      .between(int64_t{1}, limits::kSamples.max)
      .excludes(children);
  add_json(fork, forked->json);
  const auto [rewind, rewound] =
      add("rewind", "Move a session back to an earlier position (runnel serve --rewind)", true,
          run_session_rewind);
  rewind.flag("id", rewound->id, "Name of the session").required();
  rewind
      .flag("position", rewound->position,
            "Position to go back to: that of the session's next value")
      .required();
  add_json(rewind, rewound->json);
  const auto [save, saved] =
      add("save", "Write a session's state to a file; the session stays", true, run_session_save);
  save.flag("id", saved->id, "Name of the session").required();
  save.flag("file", saved->file, "State file to write").required();
  save.flag("--any-owner", saved->any_owner,
            "Let every key load the file, not only yours (runnel serve --seal-keys)");
  save.flag("--expires-in", saved->expires,
            "Seconds after which the file expires (runnel serve --seal-keys)")
      .between(int64_t{1}, int64_t{INT32_MAX});
  const auto [load, loaded] =
      add("load", "Make a session from a state file", true, run_session_load);
  load.flag("file", loaded->file, "State file").required();
  load.flag("--id", loaded->id, "Name of the new session (default: the server chooses)");
  load.flag(
      "--allow-inexact", loaded->allow_inexact,
      "Load the file even if this server has another numerics id, so that later values may differ");
  add_json(load, loaded->json);
  const auto [inspect, inspected] =
      add("inspect", "Show what a state file contains, and check it", false, run_session_inspect);
  inspect.flag("file", inspected->file, "State file").required();
  add_json(inspect, inspected->json);
}

}  // namespace runnel
