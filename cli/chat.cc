#include "cli/chat.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/chat_input.h"
#include "cli/chat_view.h"
#include "cli/field_flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/reach_model.h"
#include "cli/session_state.h"
#include "cli/transcript.h"
#include "client/client.h"

namespace runnel {
namespace {

// The number of turns that can be undone. For each of them the server keeps a state.
constexpr size_t kMostTurns = 8;
// The pause before a busy session is tried again. An interrupted call ends only after a moment, and
// its session is busy until then.
constexpr std::chrono::milliseconds kBusyPause{20};
constexpr int kMostBusyPauses = 100;

// A message that the model has answered, and the data to undo it.
struct ChatTurn {
  std::string text;
  std::string system;  // the system message that was sent with it, or ""
  std::string before;  // a fork of the session before the turn; "": no state was free for it
  uint64_t seed = 0;
};

Status interrupted() { return {Code::kCancelled, "interrupted"}; }

class Chat {
 public:
  // All references must outlive the object.
  Chat(const ChatOptions& options, ModelView model, Client& client, Interrupt& interrupt,
       Console& console)
      : options_(options),
        model_(std::move(model)),
        client_(client),
        interrupt_(interrupt),
        console_(console),
        input_(options.input, interrupt.file()),
        view_(console, model_.chat.stop_text()),
        system_(options.system),
        sampling_(options.sampling) {}

  int run();

  static std::string help_text();

 private:
  // A command within the conversation.
  struct Entry {
    std::string_view name, word, what;
    Status (Chat::*run)(const std::string& word);
  };
  static const Entry kEntries[8];

  Status open();
  int talk();
  void close();
  Status command(const std::string& line);
  Status ask(const std::string& text, std::optional<uint64_t> seed = {});

  Status undo(const std::string& = "");
  Status again(const std::string&);
  Status fork(const std::string& name);
  Status save(const std::string& file);
  Status set_seed(const std::string& seed);
  Status set_thinking(const std::string& choice);
  Status help(const std::string&) { return note(help_text()); }
  Status quit(const std::string&);

  v1::GenerateRequest request_of(const ChatTurn& turn, std::optional<uint64_t> seed) const;
  Result<std::string> fork_of(const std::string& session, const std::string& name = "");
  void remember(ChatTurn turn);
  bool can_undo();
  void drop(const std::string& session);
  Status note(const std::string& text);
  int show(const Status& status);

  const ChatOptions& options_;
  const ModelView model_;
  Client& client_;
  Interrupt& interrupt_;
  Console& console_;
  ChatInput input_;
  ChatView view_;
  std::string session_;  // the session of the conversation
  std::string system_;   // the system message to send with the next message
  SamplingFlags sampling_;
  std::optional<bool> thinking_;  // none: the template decides
  std::deque<ChatTurn> turns_;    // the last turns, if the chat is interactive
  bool has_quit_ = false;
};

const Chat::Entry Chat::kEntries[] = {
    {"/undo", "", "back to before the last message, up to 8 times", &Chat::undo},
    {"/again", "", "undo, and answer the last message with another seed", &Chat::again},
    {"/fork", "NAME", "keep the conversation so far as a session of this name, too", &Chat::fork},
    {"/save", "FILE", "write the conversation so far to a state file", &Chat::save},
    {"/seed", "N", "the seed of the next answers", &Chat::set_seed},
    {"/think", "on|off", "the template's variable enable_thinking", &Chat::set_thinking},
    {"/help", "", "this list", &Chat::help},
    {"/quit", "", "end, as Ctrl-D does; Ctrl-C ends an answer", &Chat::quit},
};

std::string Chat::help_text() {
  std::string text;
  for (const Entry& entry : kEntries) {
    std::string line(entry.name);
    if (!entry.word.empty()) line += " " + std::string(entry.word);
    line.resize(15, ' ');
    text += (text.empty() ? "  " : "\n  ") + line + std::string(entry.what);
  }
  return text;
}

int Chat::run() {
  if (Status s = open(); !s.ok()) {
    return interrupt_.fired() ? fail(console_, kExitInterrupted, "interrupted") : show(s);
  }
  const int code = talk();
  close();
  return code;
}

Status Chat::open() {
  v1::Session made;
  const Status status = client_.create_session(model_.name, options_.session, made);
  const bool exists = status.code() == Code::kAlreadyExists;
  if (!status.ok() && !exists) return status;
  session_ = exists ? options_.session : made.id();
  if (!options_.interactive) return {};
  return note(tame(model_.name) + (exists ? ", continuing session " + tame(session_) : "") +
              "; /help lists the commands");
}

int Chat::talk() {
  while (console_.out) {
    if (options_.interactive) interrupt_.rearm();
    if (interrupt_.terminated()) return kExitInterrupted;
    if (options_.interactive) console_.out << "> " << std::flush;
    const std::optional<std::string> message = input_.next();
    if (!message) {
      if (options_.interactive) console_.out << std::endl;
      return interrupt_.fired() ? kExitInterrupted : kExitOk;
    }
    if (message->find_first_not_of(" \t\r\n") == std::string::npos) continue;
    const bool is_command = options_.interactive && message->starts_with('/') &&
                            message->find('\n') == std::string::npos;
    const Status status = is_command ? command(*message) : ask(*message);
    if (has_quit_) return kExitOk;
    if (interrupt_.fired()) {
      if (!options_.interactive) return fail(console_, kExitInterrupted, "interrupted");
    } else if (!status.ok()) {
      const int code = show(status);
      if (!options_.interactive) return code;
    }
  }
  return kExitOk;  // the reader of the answers is gone; delivered() reports it
}

void Chat::close() {
  for (const ChatTurn& turn : turns_) drop(turn.before);
  if (options_.session.empty()) return drop(session_);
  static_cast<void>(
      note("to continue: runnel chat " + tame(model_.name) + " --session " + tame(session_)));
}

Status Chat::command(const std::string& line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const size_t from = std::min(line.find_first_not_of(' ', space), line.size());
  const std::string word = line.substr(from, line.find_last_not_of(' ') + 1 - from);
  const auto* const found = std::ranges::find(kEntries, name, &Entry::name);
  if (found == std::end(kEntries)) {
    return note("there is no command " + quote(name, 40) + "; /help lists them");
  }
  if (word.empty() == found->word.empty()) return (this->*found->run)(word);
  return note(word.empty() ? name + " needs " + std::string(found->word)
                           : name + " takes no word, and " + quote(word, 40) + " is one");
}

Status Chat::ask(const std::string& text, std::optional<uint64_t> seed) {
  if (std::ssize(text) > limits::kMessageBytes.max) {
    return invalid_argument("the message has more than " + with_commas(limits::kMessageBytes.max) +
                            " bytes, the most that a server reads: send it in parts");
  }
  if (Status s = check_utf8(text, "the message"); !s.ok()) return s;
  ChatTurn turn = {.text = text, .system = system_, .before = ""};
  if (options_.interactive) {
    Result<std::string> before = fork_of(session_);
    if (!before.ok() && before.status().code() != Code::kResourceExhausted) return before.status();
    if (before.ok()) turn.before = *before;
  }
  if (interrupt_.fired()) {
    drop(turn.before);
    return interrupted();
  }
  Transcript transcript(model_, 1);
  bool started = false;
  Status status =
      client_.generate(request_of(turn, seed), [&](const v1::GenerateResponse& event) -> Status {
        if (interrupt_.fired()) return interrupted();
        if (Status s = transcript.add(event); !s.ok()) return s;
        if (event.has_started()) {
          started = true;
          view_.begin(model_.chat.begins_thinking() && thinking_.value_or(true));
        }
        for (const v1::ValueRun& run : event.values().runs()) view_.add(run.text());
        return console_.out ? Status() : Status(Code::kCancelled, "");
      });
  if (status.ok()) status = transcript.complete();
  if (!started) {
    drop(turn.before);
    return status;
  }
  view_.end();
  system_.clear();
  turn.seed = transcript.started().seed();
  remember(std::move(turn));
  const auto& finished = transcript.samples()[0].finished;
  const bool is_cut = finished && finished->reason() == v1::Finished::LENGTH;
  return status.ok() && is_cut && options_.interactive
             ? note("(cut after " + with_commas(transcript.values()) + " values; --max-values)")
             : status;
}

v1::GenerateRequest Chat::request_of(const ChatTurn& turn, std::optional<uint64_t> seed) const {
  v1::GenerateRequest request;
  request.set_model(model_.name);
  request.mutable_origin()->set_session(session_);
  v1::Conversation& conversation = *request.mutable_conversation();
  const auto add = [&](const char* role, const std::string& content) {
    v1::ChatMessage& message = *conversation.add_messages();
    message.set_role(role);
    message.set_content(content);
  };
  if (!turn.system.empty()) add("system", turn.system);
  add("user", turn.text);
  if (thinking_) {
    v1::TemplateVariable& variable = *conversation.add_variables();
    variable.set_name("enable_thinking");
    variable.set_flag(*thinking_);
  }
  fill_sampling(sampling_, *request.mutable_sampling());
  if (seed) request.mutable_sampling()->set_seed(*seed);
  if (options_.max_values) request.set_max_values(*options_.max_values);
  return request;
}

Status Chat::undo(const std::string& /*word*/) {
  if (!can_undo()) return {};
  const ChatTurn turn = turns_.back();
  v1::Session kept;
  if (Status s = client_.get_session(model_.name, turn.before, kept); !s.ok()) return s;
  turns_.pop_back();
  system_ = turn.system;
  drop(std::exchange(session_, turn.before));
  if (options_.session.empty()) return {};
  if (auto named = fork_of(session_, options_.session); !named.ok()) {
    static_cast<void>(note("the conversation continues as session " + tame(session_)));
    return named.status();
  }
  drop(std::exchange(session_, options_.session));
  return {};
}

Status Chat::again(const std::string& /*word*/) {
  if (!can_undo()) return {};
  const ChatTurn turn = turns_.back();
  if (Status s = undo(); !s.ok()) return s;
  if (interrupt_.fired()) return interrupted();
  return ask(turn.text, turn.seed + 1);
}

Status Chat::fork(const std::string& name) {
  if (auto made = fork_of(session_, name); !made.ok()) return made.status();
  return note("to continue it: runnel chat " + tame(model_.name) + " --session " + tame(name));
}

Status Chat::save(const std::string& file) {
  v1::ExportSessionRequest request;
  request.set_model(model_.name);
  request.set_id(session_);
  std::string bytes;
  Status status = client_.export_session(request, kMostStateFileBytes, bytes);
  if (status.ok()) status = replace_file(file, bytes, kStateFileMode);
  return status.ok() ? note(tame(file) + ": " + with_commas(std::ssize(bytes)) + " bytes") : status;
}

Status Chat::set_seed(const std::string& seed) {
  if (const std::string wrong = check_seed(seed); !wrong.empty()) return note(wrong);
  uint64_t number = 0;
  std::from_chars(seed.data(), seed.data() + seed.size(), number);
  sampling_.seed = number;
  return {};
}

Status Chat::set_thinking(const std::string& choice) {
  if (choice != "on" && choice != "off") return note("/think needs on or off");
  thinking_ = choice == "on";
  return {};
}

Status Chat::quit(const std::string& /*word*/) {
  has_quit_ = true;
  return {};
}

// Forks the session. Returns the new session's name, or the error.
Result<std::string> Chat::fork_of(const std::string& session, const std::string& name) {
  v1::ForkSessionRequest request;
  request.set_model(model_.name);
  request.set_id(session);
  if (!name.empty()) request.add_children(name);
  v1::ForkSessionResponse made;
  Status status = client_.fork_session(request, made);
  for (int i = 0; i < kMostBusyPauses && status.code() == Code::kAborted; ++i) {
    if (interrupt_.fired()) return interrupted();
    std::this_thread::sleep_for(kBusyPause);
    status = client_.fork_session(request, made);
  }
  if (!status.ok()) return status;
  return made.sessions().empty() ? name : made.sessions(0).id();
}

void Chat::remember(ChatTurn turn) {
  turns_.push_back(std::move(turn));
  if (turns_.size() <= kMostTurns) return;
  drop(turns_.front().before);
  turns_.pop_front();
}

bool Chat::can_undo() {
  const bool is_none = turns_.empty();
  if (!is_none && !turns_.back().before.empty()) return true;
  static_cast<void>(note(is_none
                             ? "there is nothing to undo"
                             : "the server had no free state in which to keep what was before"));
  return false;
}

// Deletes the session. It is no error if the session no longer exists.
void Chat::drop(const std::string& session) {
  if (!session.empty()) static_cast<void>(client_.delete_session(model_.name, session));
}

Status Chat::note(const std::string& text) {
  console_.err << text << std::endl;
  return {};
}

int Chat::show(const Status& status) {
  return fail(console_, kExitFailed, call_error(in_flags(status, chat_flag)));
}

}  // namespace

int run_chat(const ChatOptions& options, Console& console) {
  if (Status s = check_utf8(options.system, "--system"); !s.ok()) {
    return fail(console, kExitUsage, s.message());
  }
  Client client(options.server, Seconds(options.timeout));
  std::atomic<bool> talks = false;
  Interrupt interrupt([&] { talks ? client.cancel_calls() : client.cancel(); });
  auto reached = reach_model(client, options.model, interrupt, console);
  if (const int* exit_code = std::get_if<int>(&reached)) return *exit_code;
  auto& model = std::get<ModelView>(reached);
  if (model.chat.has_missing()) {
    return fail(console, kExitUsage,
                "model " + quote(model.name) + " has no chat template: " + model.chat.missing());
  }
  talks = true;
  if (console.out_terminal && console.colour) interrupt.restores("\x1b[0m");  // thinking is dim
  return Chat(options, std::move(model), client, interrupt, console).run();
}

void add_chat(const Command& root) {
  const auto options = std::make_shared<ChatOptions>();
  const Command command =
      root.command("chat", "Talk with a model; from a pipe, each line is a message");
  command.flag("--model,model", options->model, "Name of the model, if the server has several")
      .from_environment("RUNNEL_MODEL");
  add_server(command, options->server);
  command.flag("--system", options->system, "Instructions to the model, before the first message");
  command.flag("--session", options->session,
               "Continue this session, or make it if it does not exist, and keep it at the end "
               "(default: a new session, which is deleted at the end)");
  command.flag("--max-values", options->max_values,
               "Most values of an answer (default: limits.chat_values of the server)");
  add_sampling(command, options->sampling);
  add_penalties(command, options->sampling);
  add_timeout(command, options->timeout, "that an answer may take");
  command.footer("Commands, at the start of a line in a terminal:\n" + Chat::help_text());
  command.runs([options](Console& console) {
    options->interactive = isatty(options->input) == 1 && console.out_terminal;
    return run_chat(*options, console);
  });
}

}  // namespace runnel
