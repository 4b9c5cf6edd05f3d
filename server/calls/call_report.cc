#include "server/calls/call_report.h"

#include <vector>

#include "base/within_memory.h"

namespace runnel {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void log_call(const ServerContext& state, const CallStart& start, const ServedModel* model,
              const CallProgress& progress, const Status& status) {
  std::vector<LogField> fields = {
      {"rpc", start.rpc},
      {"model", model == nullptr ? "" : model->name},
      {"caller", start.caller.ok() ? start.caller->name : ""},
      {"peer", start.peer},
      {"code", code_name(status.code())},
      {"given", progress.given},
      {"sampled", progress.sampled},
  };
  if (progress.queued) fields.push_back({"queue_seconds", seconds(*progress.queued)});
  if (progress.first) fields.push_back({"first_seconds", seconds(*progress.first)});
  fields.push_back({"seconds", seconds(state.clock.now() - start.came)});
  if (!start.trace_id.empty()) fields.push_back({"trace", start.trace_id});
  if (!status.ok()) fields.push_back({"message", status.message()});
  state.log.info("call", fields);
}

}  // namespace

void report(ServerContext& state, const CallStart& start, const ServedModel* model,
            const CallProgress& progress, const Status& status) {
  CallMetrics& metrics = model == nullptr ? state.metrics.calls : *model->calls;
  metrics.count(start.rpc, status);
  if (progress.first && progress.sampled > 0) metrics.first_value.observe(*progress.first);
  if (!state.access_log) return;
  // The call must end even if there is no memory for its log line.
  static_cast<void>(within_memory([&] {
    log_call(state, start, model, progress, status);
    return Status();
  }));
}

}  // namespace runnel
