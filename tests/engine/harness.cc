#include "tests/engine/harness.h"

#include <utility>

namespace runnel {

void Reader::read() {
  StreamGroup group;
  while (!end && stream->take(group)) {
    if (group.queued) queued.push_back(*group.queued);
    if (group.started) started = group.started;
    for (const StreamValue& value : group.values) {
      values[value.sample].push_back(value.value);
      positions[value.sample].push_back(value.position);
      log_probs[value.sample].push_back(value.log_prob);
    }
    if (!group.values.empty()) groups.push_back(group.values.size());
    finished.insert(finished.end(), group.finished.begin(), group.finished.end());
    if (group.end) end = group.end;
  }
}

Harness::Harness(Spec spec, ModelLimits limits, EngineOptions options) {
  auto owned = std::make_unique<FakeModel>(std::move(spec), limits);
  model = owned.get();
  engine = std::make_unique<Engine>(std::move(owned), options, clock, false);
}

Harness::Harness(std::unique_ptr<Model> owned, const EngineOptions& options)
    : engine(std::make_unique<Engine>(std::move(owned), options, clock, false)) {}

std::shared_ptr<Reader> Harness::generate(const GenerateRequest& request, int room) {
  auto reader = std::make_shared<Reader>();
  reader->stream = std::make_shared<TokenStream>(
      request.delivery, room > 0 ? room : engine->stream_room(request.samples),
      request.top_log_probs, [] {});
  readers.push_back(reader);
  if (Status s = engine->generate(request, reader->stream); !s.ok()) reader->end = s;
  return reader;
}

void Harness::turn() {
  engine->turn();
  for (const auto& reader : readers) reader->read();
}

void Harness::run(int turns) {
  for (int i = 0; i < turns; ++i) {
    const bool moved = engine->turn();
    for (const auto& reader : readers) reader->read();
    if (!moved) return;
  }
}

Result<SessionInfo> Harness::create(const std::string& id) {
  std::optional<Result<SessionInfo>> result;
  engine->create_session({}, id, [&](Result<SessionInfo> r) { result = std::move(r); });
  if (!result) engine->turn();
  return *result;
}

Result<SessionInfo> Harness::get(const std::string& id) {
  std::optional<Result<SessionInfo>> result;
  engine->get_session({"", id}, [&](Result<SessionInfo> r) { result = std::move(r); });
  if (!result) engine->turn();
  return *result;
}

Status Harness::remove(const std::string& id) {
  std::optional<Status> result;
  engine->delete_session({"", id}, [&](Status s) { result = std::move(s); });
  if (!result) engine->turn();
  return *result;
}

Result<std::vector<SessionInfo>> Harness::fork(const std::string& parent,
                                               const std::vector<std::string>& children) {
  std::optional<Result<std::vector<SessionInfo>>> result;
  engine->fork_session({}, parent, children, [&](auto r) { result = std::move(r); });
  while (!result) engine->turn();
  return *result;
}

Result<StateImage> Harness::export_state(const std::string& id) {
  const auto image = std::make_shared<StateImage>();
  std::optional<Status> result;
  engine->export_session({"", id}, image, [&](const auto& r) { result = r.status(); });
  while (!result) engine->turn();
  return result->ok() ? Result<StateImage>(*image) : Result<StateImage>(*result);
}

Result<std::vector<SessionInfo>> Harness::import_state(const std::string& id,
                                                       const StateImage& image) {
  std::optional<Result<std::vector<SessionInfo>>> result;
  engine->import_session({}, id, std::make_shared<StateImage>(image),
                         [&](auto r) { result = std::move(r); });
  while (!result) engine->turn();
  return *result;
}

Result<SessionInfo> Harness::rewind(const std::string& id, int64_t position) {
  std::optional<Result<std::vector<SessionInfo>>> result;
  engine->rewind_session({}, id, position, [&](auto r) { result = std::move(r); });
  while (!result) engine->turn();
  return result->ok() ? Result<SessionInfo>((**result)[0]) : Result<SessionInfo>(result->status());
}

std::shared_ptr<const Tokenizer> number_tokenizer() {
  std::vector<std::string> bytes;
  for (int value = 0; value < 100; ++value) bytes.push_back("<" + std::to_string(value) + ">");
  return std::make_shared<const Tokenizer>(
      TokenizerParts{.model = BytePairs({}), .bytes = std::move(bytes)});
}

GenerateRequest request_of(std::vector<int32_t> prompt, int64_t max_values, uint64_t seed) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_values = max_values;
  request.seed = seed;
  return request;
}

}  // namespace runnel
