#include "tests/cli/every_refusal.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/fields.h"
#include "base/limits.h"
#include "engine/engine.h"
#include "engine/refusals.h"
#include "engine/validate.h"
#include "models/state/file.h"
#include "server/calls/export_call.h"
#include "server/calls/session_calls.h"
#include "server/calls/state_token.h"
#include "server/grpc/conversation.h"
#include "server/grpc/convert.h"
#include "server/grpc/page_token.h"
#include "server/host/chat_input.h"
#include "tests/engine/fake_model.h"
#include "tests/server/test_models.h"

namespace runnel {
namespace {

using Refusals = std::vector<Refusal>;

Spec small_spec() {
  Spec spec;
  spec.name = "m";
  spec.vocabulary = 10;
  spec.begin = Begin{};
  return spec;
}

void add(Refusals& all, Asked asked, Status status) {
  EXPECT_FALSE(status.ok()) << "refusal " << all.size();
  all.push_back({asked, std::move(status)});
}

// --- Checks of the engine ---

void add_requests(Refusals& all) {
  using R = GenerateRequest;
  const auto refuse = [&](const std::function<void(R&)>& change, const Spec& spec = small_spec()) {
    R request;
    request.max_values = 1;
    change(request);
    add(all, Asked::kGenerate, validate(request, spec, {}));
  };
  refuse([](R& r) { r.samples = 0; });
  refuse([](R& r) { r.max_values = -1; });
  refuse([](R& r) { r.max_values.reset(); });
  refuse([](R& r) { r.top_log_probs = -1; });
  refuse([](R& r) { r.samples = 2, r.keep = true; });
  refuse([](R& r) { r.max_time = Duration(0); });
  refuse([](R& r) { r.max_queue_time = Duration(-1); });
  refuse([](R& r) { r.prompt = {10}; });
  refuse([](R& r) { r.sampling.temperature = -1; });
  refuse([](R& r) { r.sampling.top_k = -1; });
  refuse([](R& r) { r.sampling.top_p = 2; });
  refuse([](R& r) { r.sampling.top_p = 0; });
  refuse([](R& r) { r.sampling.min_p = -1; });
  refuse([](R& r) { r.stop = {{}}; });
  refuse([](R& r) { r.stop = {{10}}; });
  refuse([](R& r) { r.stop.resize(kMaxStopSequences + 1, {1}); });
  refuse([](R& r) { r.stop_text = {"x"}; });
  refuse([](R& r) { r.stop_text = {""}, r.tokenizer = Tokenizer::of_bytes(); });
  refuse([](R& r) {
    r.stop_text.resize(kMaxStopSequences + 1, "x");
    r.tokenizer = Tokenizer::of_bytes();
  });
  refuse([](R& r) { r.session = "a b"; });
  refuse([](R& r) { r.request_id = std::string(kMaxNameLength + 1, 'r'); });
  refuse([](R& r) { r.delivery.max_values = 0; });
  refuse([](R& r) { r.delivery.max_delay = Duration(-1); });
  Spec mixture = small_spec();
  mixture.head.kind = HeadKind::kMixtureOfLogistics;
  refuse([](R& r) { r.sampling.top_k = 1; }, mixture);
  Spec without_begin = small_spec();
  without_begin.begin.reset();
  refuse([](R&) {}, without_begin);
  add(all, Asked::kGenerate, validate_length(0, 1000, fields::kPrompt, fake_spec(20)));
}

void add_penalties(Refusals& all) {
  Spec mixture = small_spec();
  mixture.head.kind = HeadKind::kMixtureOfLogistics;
  const std::vector<LogitBias> many(kMaxLogitBiases + 1);
  for (const Penalties& penalties :
       {Penalties{.repetition = 0}, Penalties{.frequency = 3}, Penalties{.presence = 3},
        Penalties{.logit_bias = {{10, 0}}}, Penalties{.logit_bias = {{1, 200}}},
        Penalties{.logit_bias = {{1, 0}, {1, 0}}}, Penalties{.logit_bias = many}}) {
    add(all, Asked::kGenerate, validate_penalties(penalties, small_spec(), 1));
  }
  for (const Penalties& penalties :
       {Penalties{.repetition = 2}, Penalties{.frequency = 1}, Penalties{.presence = 1}}) {
    add(all, Asked::kGenerate, validate_penalties(penalties, mixture, 1));
    add(all, Asked::kGenerate, validate_penalties(penalties, small_spec(), 0));
  }
}

// Adds refusals of valid calls for lack of states. `field` asks for states, or is "".
void add_full(Refusals& all, Asked asked, std::string_view field) {
  add(all, asked, no_room(3, 0, 2, 0, field));
  add(all, asked, no_room(3, 0, 2, 1, field));
  add(all, asked, no_room(1, 0, 2, 2, field));
  add(all, asked, no_room(1, 0, 2, 0, field));
  add(all, asked, share_used_up(3, 0, 2, field));
  add(all, asked, share_used_up(1, 2, 2, field));
  add(all, asked, states_used_up("ada", 3, 0, 2, field));
  add(all, asked, states_used_up("ada", 1, 2, 2, field));
  add(all, asked, others_wait(2, asked == Asked::kGenerate || asked == Asked::kScore));
  add(all, asked, mailbox_full());
  add(all, asked, draining_status());
  add(all, asked, device_failed("m", {Code::kInternal, "gone"}));
}

void add_calls(Refusals& all) {
  add_full(all, Asked::kGenerate, fields::kSamples);
  add(all, Asked::kGenerate, queue_full());
  add(all, Asked::kGenerate, shutting_down());
  add(all, Asked::kGenerate, calls_used_up("ada", 1));
  add(all, Asked::kGenerate, values_used_up("ada", 1, std::chrono::seconds(1)));
  add(all, Asked::kGenerate, used_otherwise("r"));
  add(all, Asked::kGenerate, made_again());
  add(all, Asked::kGenerate, not_at(3, 5));
  add(all, Asked::kGenerate, no_session("s", fields::kSession));
  add(all, Asked::kGenerate, no_stored_state("s"));
}

void add_scores(Refusals& all) {
  const Clock clock{TimePoint(std::chrono::seconds(1000))};
  Engine engine(std::make_unique<FakeModel>(fake_spec(), kTestLimits), {}, clock, false);
  add(all, Asked::kScore, engine.start_score({}, {}, false, true).status());
  const auto call = engine.start_score({}, {});
  ASSERT_TRUE(call.ok());
  add(all, Asked::kScore, engine.score(*call, {}, [](const auto&) {}));
  add(all, Asked::kScore, engine.score(*call, {-1}, [](const auto&) {}));
  add(all, Asked::kScore, validate_length(0, 1000, fields::kValues, fake_spec(20)));
  add_full(all, Asked::kScore, "");
}

void add_sessions(Refusals& all) {
  add_full(all, Asked::kCreate, "");
  add(all, Asked::kCreate, validate_session_id("a b", fields::kId));
  add(all, Asked::kCreate, session_exists("s", fields::kId));
  add(all, Asked::kSessions, validate_session_id("a b", fields::kId));
  add(all, Asked::kSessions, no_session("s", fields::kId));
  for (const std::string_view field : {fields::kCount, fields::kChildren}) {
    add_full(all, Asked::kSessions, field);
  }
  add(all, Asked::kSessions, session_exists("s", fields::kChildren));
  const EngineOptions options;
  add(all, Asked::kSessions, validate_children({}, options));
  add(all, Asked::kSessions, validate_children({"a b"}, options));
  add(all, Asked::kSessions, validate_children({"a", "a"}, options));
  add(all, Asked::kSessions, validate_rewind(0, options));
  EngineOptions rewinding;
  rewinding.rewind_values = 1;
  add(all, Asked::kSessions, validate_rewind(-1, rewinding));
}

// --- Checks of the server ---

class NotedCall final : public AnsweredCall {
 public:
  explicit NotedCall(ServerContext& state)
      : AnsweredCall(state, {.rpc = "Test", .peer = "here", .caller = Caller()}) {}
  void tend(TimePoint /*now*/) override {}

 private:
  void refuse(const Status& /*status*/) override {}
};

class NotedExport final : public ExportSink {
 public:
  explicit NotedExport(ServerContext& state)
      : call_(ExportCall::make(state, {.rpc = "Test", .peer = "here", .caller = Caller()}, *this)) {
  }
  // The status of an export with these terms, which is refused at once.
  Status refusal(std::shared_ptr<const ServedModel> model, const ExportTerms& terms) {
    call_->enter();
    call_->start(std::move(model), "s", terms);
    call_->leave();
    return status_;
  }
  void write(std::string /*piece*/) override {}
  void finish(const Status& status) override { status_ = status; }
  void cut_off() override {}

 private:
  std::shared_ptr<ExportCall> call_;
  Status status_;
};

void add_exports(Refusals& all, ServerContext& state,
                 const std::shared_ptr<const ServedModel>& model) {
  for (const auto seconds : {std::chrono::seconds(0), std::chrono::seconds(10)}) {
    add(all, Asked::kSave, NotedExport(state).refusal(model, {.expires_in = seconds}));
  }
  const SealKeys keys = {make_seal_key(std::string(32, 's'))};
  StateHeader header;
  header.model = model->state_digest;
  header.numerics = "other";
  StateTarget target{.spec = model->engine->spec(),
                     .layout = model->engine->layout(),
                     .model = model->state_digest,
                     .keys = &keys};
  add(all, Asked::kLoad, check_state(header, target));
  header.key = keys[0].id;
  header.terms.owner = owner_mark(keys[0], "ada");
  add(all, Asked::kLoad, check_state(header, target));
}

void add_tokens(Refusals& all, ServerContext& state, const ServedModel& model) {
  GenerateRequest request;
  add(all, Asked::kToken, check_tokens(state, model, request, {.given = ""}));
  add(all, Asked::kToken, check_tokens(state, model, request, {.wanted = true}));
  state.seal_keys = SealKeys{make_seal_key(std::string(32, 's'))};
  add(all, Asked::kToken, open_token(state, model, Caller(), "x").status());
  state.token_bytes = 0;
  add(all, Asked::kToken, check_tokens(state, model, request, {.wanted = true}));
  request.samples = 2;
  add(all, Asked::kToken, check_tokens(state, model, request, {.wanted = true}));
  request.keep = true;
  add(all, Asked::kToken, check_tokens(state, model, request, {.wanted = true}));
  request.session = "s";
  add(all, Asked::kToken, check_tokens(state, model, request, {.wanted = true}));
  request.session.reset();
  request.state = "s";
  add(all, Asked::kToken, check_tokens(state, model, request, {.wanted = true}));
}

void add_calls_of(Refusals& all, ServerContext& state) {
  const auto call = std::make_shared<NotedCall>(state);
  add(all, Asked::kModel, call->find_model("").status());
  add(all, Asked::kModel, call->find_model("none").status());
  const auto first = [](const std::string&) { return Result<std::string>(std::string()); };
  add(all, Asked::kSessions, list_sessions(*call, "a", -1, first, {}));
  add(all, Asked::kSessions, fork_session(*call, "a", "s", {}, 0, {}));
  add(all, Asked::kSessions, fork_session(*call, "a", "s", {"b"}, 1, {}));
}

void add_conversations(Refusals& all) {
  const auto refuse = [&](const std::function<void(v1::Conversation&)>& change) {
    v1::Conversation message;
    v1::ChatMessage& question = *message.add_messages();
    question.set_role("user");
    question.set_content("x");
    change(message);
    add(all, Asked::kChat, conversation_of(message).status());
  };
  refuse([](auto& c) { c.mutable_messages(0)->set_role("x"); });
  refuse([](auto& c) { c.mutable_messages(0)->add_tool_calls(); });
  refuse([](auto& c) { c.add_tools("x"); });
  refuse([](auto& c) { c.add_tools("{}"); });
  refuse([](auto& c) { c.add_variables()->set_name("loop"); });
  refuse([](auto& c) { c.set_continues(true); });
}

void add_turns(Refusals& all) {
  const auto system = OrderedJson::array({{{"role", "system"}, {"content", "x"}}});
  add(all, Asked::kChat, check_later({.messages = system}, ChatStart::kSession));
  const auto user = OrderedJson::array({{{"role", "user"}, {"content", "x"}}});
  add(all, Asked::kChat,
      check_later({.messages = user, .tools = OrderedJson::array()}, ChatStart::kSession));
  ServedModel model = served_fake("m");
  add(all, Asked::kChat, check_chats(model, "m"));
  const auto format = ChatFormat::make({.source = "{% for m in messages %}{{ loop.index }}: "
                                                  "{{ m.content }}{{ '\\n' }}{% endfor %}",
                                        .name = "t"},
                                       Tokenizer::of_bytes());
  ASSERT_TRUE(format.ok()) << format.status().message();
  model.chat = *format;
  add(all, Asked::kChat, check_turns(model, "m", ChatStart::kSession));
  const auto tool = OrderedJson::array({{{"role", "tool"}, {"content", "x"}}});
  const auto raising = ChatFormat::make(
      {.source = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}"
                 "{% endif %}{{ m.content }}{% endfor %}",
       .name = "t"},
      Tokenizer::of_bytes());
  ASSERT_TRUE(raising.ok()) << raising.status().message();
  for (const ChatStart start : {ChatStart::kFresh, ChatStart::kSession}) {
    const Conversation talk = {.messages = tool};
    add(all, Asked::kChat, prompt_of_call(**raising, talk, false, start, WorkLimit()).status());
  }
}

void add_of_server(Refusals& all) {
  std::ostringstream text;
  const EventLog log("error", false, text);
  ServerContext state(log);
  for (const char* const name : {"a", "b"}) ASSERT_TRUE(state.models.add(served_fake(name)).ok());
  state.models.open();
  add_calls_of(all, state);
  const auto model = state.models.find({}, "a");
  ASSERT_TRUE(model.ok());
  add_exports(all, state, *model);
  add_tokens(all, state, **model);
  add(all, Asked::kText, values_of_text("x", {.model = "m"}).status());
  const TextInput input = {.model = "m", .tokenizer = Tokenizer::of_bytes(), .at_most = 1};
  add(all, Asked::kText, values_of_text("xx", input).status());
  add(all, Asked::kWire, read_page_token("a", "x").status());
  google::protobuf::Duration duration;
  duration.set_nanos(1 << 30);
  add(all, Asked::kWire, duration_of(duration, fields::kMaxTime).status());
}

}  // namespace

std::vector<Refusal> every_refusal() {
  Refusals all;
  add_requests(all);
  add_penalties(all);
  add_calls(all);
  add_scores(all);
  add_sessions(all);
  add_conversations(all);
  add_turns(all);
  add_of_server(all);
  return all;
}

}  // namespace runnel
