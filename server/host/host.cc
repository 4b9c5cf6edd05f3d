#include "server/host/host.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "storage/open_store.h"

namespace runnel {
namespace {

constexpr auto kTend = std::chrono::seconds(1);
constexpr auto kEndedStreams =
    std::chrono::milliseconds(500);  // for ended streams to send their status
constexpr auto kQuiet = std::chrono::milliseconds(30);
constexpr auto kLastCalls = std::chrono::milliseconds(300);
// How many times to wait for kTend: first until sessions are saved, then until states have replaced
// logs.
constexpr int kLastSaves = 5;

}  // namespace

Host::Host(const HostOptions& options, const EventLog& log, const Clock& clock)
    : keys_(options.keys),
      seal_keys_(options.seal_keys),
      storage_(options.storage),
      log_(log),
      context_(log, clock, options.call_bytes) {
  context_.version = options.version;
  context_.delivery = options.delivery;
  context_.text_bytes = options.text_bytes;
  context_.samples = options.samples;
  context_.max_values = options.max_values;
  context_.chat_values = options.chat_values;
  context_.stall_timeout = options.stall_timeout;
  context_.queue_time = options.queue_time;
  context_.http_queue_time = options.http_queue_time;
  context_.access_log = options.access_log;
  context_.token_bytes = options.token_bytes;
  context_.token_ttl = options.token_ttl;
}

Status Host::open() {
  if (!keys_.empty()) {
    if (Status s = context_.callers.ask_for_keys(keys_); !s.ok()) return s;
  }
  if (!seal_keys_.empty()) {
    Result<SealKeys> keys = read_seal_keys(seal_keys_);
    if (!keys.ok()) return keys.status();
    context_.seal_keys = std::move(*keys);
  }
  if (storage_.settings.url.empty() && storage_.store == nullptr) return {};
  std::shared_ptr<Store> store = storage_.store;
  if (store == nullptr) {
    auto opened = open_store(storage_.settings, context_.clock);
    if (!opened.ok()) return opened.status();
    store = std::move(*opened);
  }
  context_.kept = std::make_shared<KeptSessions>(context_, std::move(store), storage_);
  return {};
}

void Host::ready() {
  context_.models.open();
  serving_.store(true, std::memory_order_release);
}

void Host::tend() {
  const TimePoint now = context_.clock.now();
  context_.callers.refresh(log_, now);
  context_.calls.tend_all(now);
  if (context_.kept) context_.kept->tend();
}

Status Host::failure() const {
  const auto models = context_.models.all();
  for (const auto& [name, model] : *models) {
    if (Status s = model->engine->failure(); !s.ok()) return s;
  }
  return {};
}

void Host::refuse() {
  context_.draining.store(true, std::memory_order_release);
  unready();
  context_.models.drain();
}

void Host::end_calls(Duration grace, const std::function<void()>& tend) {
  if (!wait_until_none(grace, tend)) {
    Status status(Code::kUnavailable,
                  "the server is shutting down and the call did not end in time; continue on "
                  "another server");
    context_.calls.end_all(status.with_reason("draining"));
    context_.calls.wait_until_none(kEndedStreams);
  }
  // During its shutdown, a library may answer a new call with its own status, as gRPC does with
  // CANCELLED. Calls that are already on their way still get UNAVAILABLE.
  context_.calls.wait_until_quiet(kQuiet, kLastCalls);
  if (context_.kept == nullptr) return;
  for (int i = 0; i < kLastSaves && !context_.kept->wait_until_saved(kTend); ++i) {
    context_.kept->tend();
  }
  RestingLogs& logs = context_.kept->logs();
  logs.hurry();
  for (int i = 0; i < kLastSaves && !logs.wait_until_none(kTend); ++i) context_.kept->tend();
  logs.stop();
}

// Calls `tend` repeatedly while it waits, so that a client that neither sends nor reads does not
// use up the grace period.
bool Host::wait_until_none(Duration at_most, const std::function<void()>& tend) {
  const TimePoint end = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    const Duration left = end - std::chrono::steady_clock::now();
    if (context_.calls.wait_until_none(std::clamp(left, Duration(0), Duration(kTend)))) return true;
    if (left <= Duration(kTend)) return false;
    tend();
  }
}

}  // namespace runnel
