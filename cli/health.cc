#include <algorithm>
#include <chrono>
#include <thread>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "client/client.h"

namespace runnel {
namespace {

using HealthResponse = grpc::health::v1::HealthCheckResponse;

constexpr Seconds kAskAgain{0.1};

struct Answer {
  bool serving = false;
  std::string status;  // "SERVING", or why not
};

Answer ask(Client& client, Seconds timeout) {
  if (const Status status = client.connect(timeout); !status.ok()) {
    return {false, call_error(status)};
  }
  HealthResponse health;
  if (const Status status = client.check_health(health); !status.ok()) {
    return {false, call_error(status)};
  }
  const std::string& name = HealthResponse::ServingStatus_Name(health.status());
  return {health.status() == HealthResponse::SERVING, name.empty() ? "UNKNOWN" : name};
}

}  // namespace

int run_health(const HealthOptions& options, Console& console) {
  Client client(options.server, Seconds(options.timeout));
  const Interrupt interrupt([&] { client.cancel(); });
  if (Status usable = client.open(); !usable.ok()) {
    return fail(console, kExitUsage, usable.message());
  }
  const TimePoint until =
      console.clock.now() + std::chrono::duration_cast<Duration>(Seconds(options.wait));
  Answer answer = ask(client, Seconds(options.timeout));
  while (!answer.serving && !interrupt.fired() && console.clock.now() < until) {
    std::this_thread::sleep_for(kAskAgain);
    answer = ask(client, Seconds(options.timeout));
  }
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (options.json) {
    const OrderedJson out = {
        {"server", options.server.address}, {"serving", answer.serving}, {"status", answer.status}};
    console.out << json_text(out) << std::endl;
  } else if (answer.serving) {
    console.out << answer.status << std::endl;
  }
  if (answer.serving) return kExitOk;
  if (options.json) return kExitFailed;
  return fail(console, kExitFailed, options.server.address + " does not serve: " + answer.status);
}

}  // namespace runnel
