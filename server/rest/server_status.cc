#include "server/rest/server_status.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/within_memory.h"
#include "server/calls/call_report.h"
#include "server/http/call_start.h"
#include "server/http/live_answer.h"
#include "server/rest/words.h"

namespace runnel {
namespace {

constexpr const char* kCall = "GetStatus";
constexpr double kNanoseconds = 1e9;   // in one second
constexpr int64_t kMostSymbols = 256;  // of a model: a page asks for the status every second

OrderedJson image_json(const Spec& spec) {
  if (!spec.image) return nullptr;
  return {{"width", spec.image->width},
          {"height", spec.image->height},
          {"channels", spec.image->channels}};
}

// The value that a client puts first, as in training; null if there is none.
OrderedJson begin_json(const Spec& spec) {
  const bool is_given = spec.begin && spec.begin->histogram.empty();
  return is_given ? OrderedJson(spec.begin->value) : OrderedJson();
}

// How the values are written; null if they are numbers, or too many to list.
OrderedJson symbols_json(const Spec& spec) {
  const bool is_listed = !spec.symbols.empty() && std::ssize(spec.symbols) <= kMostSymbols;
  return is_listed ? OrderedJson(spec.symbols) : OrderedJson();
}

// Describes the model.
OrderedJson described(const ServedModel& model) {
  const Engine& engine = *model.engine;
  const Spec& spec = engine.spec();
  return {{"id", model.name},
          {"parameters", spec.parameters()},
          {"numerics", engine.numerics()},
          {"state_bytes", engine.state_bytes()},
          {"position_bytes", engine.position_bytes()},
          {"vocabulary", spec.vocabulary},
          {"max_length", spec.max_length() == 0 ? OrderedJson() : OrderedJson(spec.max_length())},
          {"begin", begin_json(spec)},
          {"image", image_json(spec)},
          {"symbols", symbols_json(spec)},
          {"has_text", model.tokenizer != nullptr},
          {"has_chat", model.chat != nullptr}};
}

// Adds the number of the model's sessions, and the counts of all models of its name.
void add_figures(const ServedModel& model, const ModelFigures& figures, OrderedJson& json) {
  const EngineStats stats = model.engine->stats();
  json["sessions"] = stats.sessions;
  json["sessions_free"] = stats.sessions_free;
  json["calls_waiting"] = stats.waiting;
  json["values_sampled"] = figures.engine.values_sampled.value();
  json["values_consumed"] = figures.engine.values_consumed.value();
  json["steps"] = figures.engine.step_rows.count();
  json["step_rows"] = figures.engine.step_rows.sum();
  json["first_values"] = figures.calls.first_value.count();
  json["first_value_seconds"] = static_cast<double>(figures.calls.first_value.sum()) / kNanoseconds;
}

OrderedJson status_json(const ServerContext& state, const Caller& caller) {
  const ServedModels::ByName usable = state.models.all_for(caller);
  const std::map<std::string, ModelFigures> figures = state.models.figures();
  OrderedJson models = OrderedJson::array();
  for (const auto& [name, model] : usable) {
    const auto counted = figures.find(name);
    if (counted == figures.end()) continue;  // retired in the meantime
    models.push_back(described(*model));
    add_figures(*model, counted->second, models.back());
  }
  return {{"object", "status"}, {"version", state.version}, {"models", std::move(models)}};
}

}  // namespace

std::vector<HttpRoute> server_status_routes(ServerContext& state, const Gate& gate) {
  const auto handle = [&state](const HttpRequest& request, HttpReply reply) {
    const CallStart start = call_start(kCall, state, request);
    std::string body;
    Status status = start.caller.status();
    if (status.ok()) status = state.models.ready();
    if (status.ok()) {
      status = within_memory([&] {
        body = json_text(status_json(state, *start.caller)) + "\n";
        return Status();
      });
    }
    if (!status.ok()) {
      report(state, start, nullptr, {}, status);
      return send_fault(rest_fault(status), reply);
    }
    reply.set_header("Cache-Control", "no-store");
    reply.send({200, "application/json", std::move(body)}, live_answer(state, nullptr));
  };
  return {{"GET", "/v1/status", gate.guard(handle)}};
}

}  // namespace runnel
