#include "bench/engine_calls.h"

#include <future>
#include <memory>
#include <utility>

namespace runnel {
namespace {

// Starts one call. The tally counts its values on the scheduler's own thread, so reading costs next
// to nothing.
void start_call(Engine& engine, GenerateRequest request, const std::shared_ptr<Tally>& tally) {
  struct Reader {
    TokenStream* stream = nullptr;
    StreamGroup group;
  };
  request.delivery = {.max_values = kValuesTogether * request.samples, .max_delay = kLongestWait};
  request.delivery.max_values =
      std::min<int>(request.delivery.max_values, limits::kDeliveryValues.max);
  const auto reader = std::make_shared<Reader>();
  const auto stream = std::make_shared<TokenStream>(
      request.delivery, engine.stream_room(request.samples), 0, [reader, tally] {
        while (reader->stream->take(reader->group)) {
          tally->add(static_cast<int64_t>(reader->group.values.size()));
          if (reader->group.end) return tally->end(*reader->group.end);
        }
      });
  reader->stream = stream.get();
  if (Status s = engine.generate(std::move(request), stream); !s.ok()) tally->end(s);
}

Result<double> run_one(Engine& engine, GenerateRequest request, const Work& work) {
  const auto tally = std::make_shared<Tally>(work);
  start_call(engine, std::move(request), tally);
  return tally->wait({});
}

}  // namespace

Result<double> run_on_engine(Engine& engine, const Work& work, const OnValues& on_values,
                             const std::string& session) {
  const auto tally = std::make_shared<Tally>(work);
  for (int call = 0; call < work.calls; ++call) {
    GenerateRequest request;
    request.samples = work.samples;
    request.max_values = work.values;
    request.ignore_eos = true;  // each sample must have work.values values
    request.seed = work.seed + static_cast<uint64_t>(call);
    if (!session.empty()) {
      request.session = session;
      request.keep = false;
    } else if (!engine.spec().begin) {
      request.prompt = {0};
    }
    start_call(engine, std::move(request), tally);
  }
  return tally->wait(on_values);
}

Result<double> read_prompt(Engine& engine, std::vector<int32_t> prompt) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_values = 1;
  request.ignore_eos = true;
  return run_one(engine, std::move(request), {.values = 1});
}

Result<double> sample_from_session(Engine& engine, const std::string& session, int64_t values) {
  GenerateRequest request;
  request.session = session;
  request.keep = false;
  request.max_values = values;
  request.ignore_eos = true;
  request.seed = 1;
  return run_one(engine, std::move(request), {.values = values});
}

Result<double> feed_session(Engine& engine, const std::string& session,
                            std::vector<int32_t> values) {
  std::promise<Status> made;
  engine.create_session({}, session,
                        [&](const Result<SessionInfo>& info) { made.set_value(info.status()); });
  const Status status = made.get_future().get();
  if (!status.ok() && status.code() != Code::kAlreadyExists) return status;
  GenerateRequest request;
  request.session = session;
  request.prompt = std::move(values);
  request.max_values = 0;
  return run_one(engine, std::move(request), {.values = 0});
}

}  // namespace runnel
