#include "server/host/metrics_text.h"

#include <array>
#include <map>

#include "engine/session.h"
#include "server/host/process_figures.h"

namespace runnel {
namespace {

using ByModel = std::map<std::string, ModelFigures>;

void put_calls(MetricsText& text, const ByModel& models) {
  text.family("runnel_calls_total", "counter", "Calls that have ended, by method and status code.");
  for (const auto& [name, figures] : models) {
    for (size_t method = 0; method < kMethods.size(); ++method) {
      for (size_t code = 0; code < kCodes; ++code) {
        const int64_t ended = figures.calls.ended[method][code].value();
        // A counter that a served model may increase exists from the start, so that its growth is
        // visible.
        const bool may_come = figures.slots > 0 && static_cast<Code>(code) == Code::kOk;
        if (ended == 0 && !may_come) continue;
        text.sample({{"model", name},
                     {"method", kMethods[method]},
                     {"code", code_name(static_cast<Code>(code))}},
                    ended);
      }
    }
  }
  text.family("runnel_refusals_total", "counter",
              "Valid calls refused or ended because the server lacked a resource, by reason.");
  for (const auto& [name, figures] : models) {
    for (size_t reason = 0; reason < kReasons.size(); ++reason) {
      const int64_t refused = figures.calls.refused[reason].value();
      if (refused > 0 || figures.slots > 0)
        text.sample({{"model", name}, {"reason", kReasons[reason]}}, refused);
    }
  }
}

template <typename Member>
void put_histogram(MetricsText& text, const ByModel& models, const char* name, const char* help,
                   Member member) {
  text.family(name, "histogram", help);
  for (const auto& [model, figures] : models) {
    const Histogram& histogram = member(figures);
    if (figures.slots > 0 || histogram.count() > 0) text.sample({{"model", model}}, histogram);
  }
}

void put_times(MetricsText& text, const ByModel& models) {
  using F = const ModelFigures&;
  using H = const Histogram&;
  put_histogram(text, models, "runnel_queue_seconds",
                "Time from a call's validation to its admission, of calls that were admitted.",
                [](F figures) -> H { return figures.engine.queue_time; });
  put_histogram(text, models, "runnel_first_value_seconds",
                "Time from the arrival of a call that samples to its first value.",
                [](F figures) -> H { return figures.calls.first_value; });
  put_histogram(text, models, "runnel_value_gap_seconds",
                "Time between two consecutive values of a sample.",
                [](F figures) -> H { return figures.engine.value_gap; });
  put_histogram(text, models, "runnel_step_seconds", "Duration of a step of the model.",
                [](F figures) -> H { return figures.engine.step_time; });
  put_histogram(text, models, "runnel_step_rows", "Sequences that a step advanced.",
                [](F figures) -> H { return figures.engine.step_rows; });
  put_histogram(text, models, "runnel_step_values", "Values that a step consumed.",
                [](F figures) -> H { return figures.engine.step_values; });
}

void put_count(MetricsText& text, const std::string& model, const ModelFigures& figures,
               int64_t count) {
  if (figures.slots > 0 || count > 0) text.sample({{"model", model}}, count);
}

void put_values(MetricsText& text, const ByModel& models) {
  text.family("runnel_values_sampled_total", "counter", "Values sampled.");
  for (const auto& [name, figures] : models) {
    put_count(text, name, figures, figures.engine.values_sampled.value());
  }
  text.family("runnel_values_consumed_total", "counter",
              "Values consumed of prompts and of what Score calls were given.");
  for (const auto& [name, figures] : models) {
    put_count(text, name, figures, figures.engine.values_consumed.value());
  }
}

void put_prefixes(MetricsText& text, const ByModel& models, const ServedModels& served) {
  text.family("runnel_prefix_lookups_total", "counter",
              "Prompts of new sequences, by whether a state was kept of their beginning.");
  for (const auto& [name, figures] : models) {
    const int64_t hits = figures.engine.prefix_hits.value();
    const int64_t misses = figures.engine.prefix_misses.value();
    if (figures.slots == 0 && hits + misses == 0) continue;
    text.sample({{"model", name}, {"result", "hit"}}, hits);
    text.sample({{"model", name}, {"result", "miss"}}, misses);
  }
  text.family("runnel_prefix_values_total", "counter",
              "Values of prompts that were not read again, because a state was kept after them.");
  for (const auto& [name, figures] : models) {
    put_count(text, name, figures, figures.engine.prefix_values.value());
  }
  text.family("runnel_prefix_bytes", "gauge",
              "Bytes of states that are kept of prompts, in free slots.");
  const auto all = served.all();
  for (const auto& [name, model] : *all) {
    text.sample({{"model", name}}, model->engine->stats().prefix_bytes);
  }
}

void put_slots(MetricsText& text, const ByModel& models) {
  text.family("runnel_slots", "gauge", "Places for states, by the state of the session in them.");
  for (const auto& [name, figures] : models) {
    if (figures.slots == 0) continue;  // no longer served
    text.sample({{"model", name}, {"state", "free"}}, figures.slots_free);
    text.sample({{"model", name}, {"state", "stored"}}, figures.slots_stored);
    for (size_t state = 0; state < figures.slots_by_state.size(); ++state) {
      text.sample(
          {{"model", name}, {"state", session_phase_name(static_cast<SessionPhase>(state))}},
          figures.slots_by_state[state]);
    }
  }
}

void put_waiting(MetricsText& text, const ByModel& models) {
  text.family("runnel_calls_waiting", "gauge", "Calls that wait for slots.");
  for (const auto& [name, figures] : models) {
    if (figures.slots > 0) text.sample({{"model", name}}, figures.waiting);
  }
}

void put_number(MetricsText& text, const char* name, const char* type, const char* help,
                auto value) {
  text.family(name, type, help);
  text.sample({}, value);
}

void put_tokens(MetricsText& text, const ServerContext& state) {
  text.family("runnel_tokens_total", "counter",
              "State tokens that calls brought, by the status of opening them.");
  for (size_t code = 0; code < kCodes; ++code) {
    const int64_t tokens = state.metrics.tokens[code].value();
    if (tokens == 0 && static_cast<Code>(code) != Code::kOk) continue;
    text.sample({{"code", code_name(static_cast<Code>(code))}}, tokens);
  }
}

void put_snapshots(MetricsText& text, const ServerContext& state) {
  text.family("runnel_snapshots_total", "counter",
              "States of sessions that were written to the store, by reason.");
  for (size_t reason = 0; reason < kSnapshotReasons.size(); ++reason) {
    text.sample({{"reason", kSnapshotReasons[reason]}}, state.metrics.snapshots[reason].value());
  }
}

void put_server(MetricsText& text, const ServerContext& state,
                const ConnectionFigures& connections) {
  text.family("runnel_build_info", "gauge", "1, with the version of the program.");
  text.sample({{"version", state.version}}, int64_t{1});
  put_number(text, "runnel_calls_running", "gauge", "Calls that run.",
             int64_t{state.calls.count()});
  put_number(text, "runnel_connections", "gauge", "gRPC connections that are open.",
             connections.open);
  put_number(text, "runnel_connections_refused_total", "counter",
             "gRPC connections that were closed on arrival.", connections.refused);
  put_number(text, "runnel_received_bytes_total", "counter", "Bytes of messages from clients.",
             state.metrics.received.value());
  put_number(text, "runnel_sent_bytes_total", "counter", "Bytes of messages to clients.",
             state.metrics.sent.value());
  put_number(text, "runnel_storage_errors_total", "counter",
             "Operations of the store of sessions that have failed.",
             state.metrics.storage_errors.value());
  put_number(text, "runnel_session_replayed_values_total", "counter",
             "Values that were computed again from logs of sessions.",
             state.metrics.replayed_values.value());
  put_number(text, "runnel_call_memory_bytes", "gauge",
             "Bytes of limits.call_bytes that calls have taken.", state.memory.held());
  put_number(text, "runnel_call_memory_limit_bytes", "gauge", "limits.call_bytes.",
             state.memory.size());
}

void put_process(MetricsText& text) {
  const ProcessFigures process = process_figures();
  put_number(text, "process_cpu_seconds_total", "counter", "CPU time, user and system, in seconds.",
             process.cpu_seconds);
  put_number(text, "process_start_time_seconds", "gauge", "Start, in seconds since 1970.",
             process.start_seconds);
  put_number(text, "process_resident_memory_bytes", "gauge", "Resident memory.",
             process.resident_bytes);
  put_number(text, "process_virtual_memory_bytes", "gauge", "Virtual memory.",
             process.virtual_bytes);
  put_number(text, "process_open_fds", "gauge", "Open file descriptors.", process.open_files);
  put_number(text, "process_max_fds", "gauge", "File descriptors that may be open.",
             process.most_files);
}

}  // namespace

std::string metrics_text(const ServerContext& state, const ConnectionFigures& connections) {
  ByModel models = state.models.figures();
  models[ServedModels::kOtherModels].calls.add(state.metrics.calls);
  MetricsText text;
  put_server(text, state, connections);
  put_snapshots(text, state);
  put_tokens(text, state);
  put_calls(text, models);
  put_times(text, models);
  put_values(text, models);
  put_prefixes(text, models, state.models);
  put_slots(text, models);
  put_waiting(text, models);
  put_process(text);
  return text.text();
}

}  // namespace runnel
