#include <string>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "client/client.h"

namespace runnel {
namespace {

using Names = google::protobuf::RepeatedPtrField<std::string>;

OrderedJson report_json(const v1::ReloadResponse& report) {
  const auto list = [](const Names& names) {
    OrderedJson json = OrderedJson::array();
    for (const std::string& name : names) json.push_back(name);
    return json;
  };
  OrderedJson json = {
      {"added", list(report.added())},     {"replaced", list(report.replaced())},
      {"retired", list(report.retired())}, {"kept", list(report.kept())},
      {"refused", OrderedJson::array()},   {"needs_restart", list(report.needs_restart())}};
  for (const auto& refused : report.refused()) {
    json["refused"].push_back({{"model", refused.model()}, {"reason", refused.reason()}});
  }
  return json;
}

void print_report(const v1::ReloadResponse& report, Console& console) {
  const auto print = [&](const char* what, const Names& names) {
    for (const std::string& name : names) console.out << what << tame(name) << '\n';
  };
  print("added     ", report.added());
  print("replaced  ", report.replaced());
  print("retired   ", report.retired());
  print("kept      ", report.kept());
  for (const auto& refused : report.refused()) {
    console.out << "refused   " << tame(refused.model()) << ": " << tame(refused.reason()) << '\n';
  }
  for (const std::string& key : report.needs_restart()) {
    console.out << "not used  " << tame(key) << ": it is read when the server starts\n";
  }
  console.out.flush();
}

}  // namespace

int run_reload(const ReloadOptions& options, Console& console) {
  Client client(options.server, Seconds(options.timeout));
  const Interrupt interrupt([&] { client.cancel(); });
  if (Status usable = client.open(); !usable.ok()) {
    return fail(console, kExitUsage, usable.message());
  }
  v1::ReloadResponse report;
  Status status = client.connect(Seconds(options.timeout));
  if (status.ok()) status = client.reload(report);
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!status.ok()) return fail(console, kExitFailed, call_error(status));
  if (options.json) {
    console.out << json_text(report_json(report)) << std::endl;
  } else {
    print_report(report, console);
  }
  return report.refused().empty() ? kExitOk : kExitFailed;
}

}  // namespace runnel
