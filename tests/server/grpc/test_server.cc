#include "tests/server/grpc/test_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/utf8.h"
#include "runnel/v1/fault.pb.h"

namespace runnel {
void Generated::take(const v1::GenerateResponse& response) {
  switch (response.event_case()) {
    case v1::GenerateResponse::kQueued:
      EXPECT_TRUE(order.empty()) << "who has started waits no more";
      places.push_back(response.queued().place());
      return;
    case v1::GenerateResponse::kStarted:
      EXPECT_TRUE(order.empty()) << "Started comes first";
      started = response.started();
      order.emplace_back("started");
      return;
    case v1::GenerateResponse::kFinished:
      EXPECT_FALSE(finished.contains(response.finished().sample()));
      finished[response.finished().sample()] = response.finished();
      order.emplace_back("finished");
      return;
    case v1::GenerateResponse::kValues:
      break;
    case v1::GenerateResponse::EVENT_NOT_SET:
      ADD_FAILURE() << "a message without an event";
      return;
  }
  EXPECT_FALSE(order.empty()) << "Started comes first";
  order.emplace_back("values");
  int count = 0;
  for (const v1::ValueRun& run : response.values().runs()) {
    EXPECT_FALSE(finished.contains(run.sample())) << "nothing of a sample after its Finished";
    EXPECT_TRUE(run.values_size() > 0 || !run.text().empty());
    EXPECT_EQ(valid_utf8_prefix(run.text()), run.text().size()) << "whole characters";
    text[run.sample()] += run.text();
    EXPECT_EQ(run.values_size(), run.log_probs_size());
    auto& all = values[run.sample()];
    if (all.empty()) first_position[run.sample()] = run.position();
    EXPECT_EQ(run.position(), first_position[run.sample()] + std::ssize(all)) << "no gap";
    all.insert(all.end(), run.values().begin(), run.values().end());
    auto& probs = log_probs[run.sample()];
    probs.insert(probs.end(), run.log_probs().begin(), run.log_probs().end());
    for (const v1::TopLogProbs& each : run.top_log_probs()) top[run.sample()].push_back(each);
    count += run.values_size();
  }
  message_values.push_back(count);
}

TestServer::TestServer(ServerOptions options, const Clock& clock)
    : server(std::move(options), log, clock) {
  const Status status = server.start();
  EXPECT_TRUE(status.ok()) << status.message();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // tests share no connections
  channel =
      grpc::CreateCustomChannel(server.address(), grpc::InsecureChannelCredentials(), arguments);
  inference = v1::Inference::NewStub(channel);
  sessions = v1::Sessions::NewStub(channel);
  models = v1::Models::NewStub(channel);
  health = grpc::health::v1::Health::NewStub(channel);
}

TestServer::TestServer(ServedModel model, ServerOptions options, const Clock& clock)
    : TestServer(std::move(options), clock) {
  EXPECT_TRUE(server.models().add(std::move(model)).ok());
  server.ready();
}

TestServer::~TestServer() {
  channel.reset();
  server.drain(Duration(0));
}

Generated TestServer::generate(const v1::GenerateRequest& request,
                               std::chrono::milliseconds timeout) {
  Generated generated;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const auto reader = inference->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) generated.take(response);
  generated.status = reader->Finish();
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    generated.trailing.emplace(std::string(key.data(), key.size()),
                               std::string(value.data(), value.size()));
  }
  return generated;
}

ScoreOutcome TestServer::score(const std::vector<v1::ScoreRequest>& chunks) {
  ScoreOutcome outcome;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = inference->Score(&context);
  std::thread writer([&] {
    for (const v1::ScoreRequest& chunk : chunks) {
      if (!stream->Write(chunk)) break;
    }
    stream->WritesDone();
  });
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
    EXPECT_FALSE(outcome.has_total) << "the total comes last";
    if (response.has_total()) {
      outcome.has_total = true;
      outcome.total = response.total();
      continue;
    }
    const v1::ScoreChunk& chunk = response.chunk();
    outcome.positions.push_back(chunk.position());
    outcome.log_probs.insert(outcome.log_probs.end(), chunk.log_probs().begin(),
                             chunk.log_probs().end());
  }
  writer.join();
  outcome.status = stream->Finish();
  return outcome;
}

ScoreOutcome TestServer::score(const std::vector<int32_t>& values) {
  return score(std::vector{score_request(values)});
}

grpc::Status TestServer::create(const std::string& id, v1::Session* session) {
  grpc::ClientContext context;
  v1::CreateSessionRequest request;
  request.set_id(id);
  v1::Session response;
  return sessions->CreateSession(&context, request, session == nullptr ? &response : session);
}

grpc::Status TestServer::get(const std::string& id, v1::Session* session) {
  grpc::ClientContext context;
  v1::GetSessionRequest request;
  request.set_id(id);
  v1::Session response;
  return sessions->GetSession(&context, request, session == nullptr ? &response : session);
}

grpc::Status TestServer::remove(const std::string& id) {
  grpc::ClientContext context;
  v1::DeleteSessionRequest request;
  request.set_id(id);
  v1::DeleteSessionResponse response;
  return sessions->DeleteSession(&context, request, &response);
}

int64_t TestServer::sessions_free() {
  grpc::ClientContext context;
  v1::ModelInfo info;
  EXPECT_TRUE(models->GetModel(&context, {}, &info).ok());
  return info.sessions_free();
}

void TestServer::expect_free(int64_t states) {
  EXPECT_TRUE(eventually([&] { return sessions_free() == states; })) << sessions_free();
}

RawOutcome TestServer::call_raw(const std::string& method, const std::string& bytes) {
  google::protobuf::SetLogHandler(nullptr);  // as the program does
  RawOutcome outcome;
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, method, &queue);
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  stream->StartCall(nullptr);
  next();
  stream->WriteLast(bytes_of(bytes), grpc::WriteOptions(), nullptr);
  next();
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  while (next()) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(response.Dump(&slices).ok());
    std::string& text = outcome.responses.emplace_back();
    for (const grpc::Slice& slice : slices) {
      text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    stream->Read(&response, nullptr);
  }
  stream->Finish(&outcome.status, nullptr);
  next();
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return outcome;
}

grpc::ByteBuffer bytes_of(const std::string& text) {
  const grpc::Slice slice(text);
  return {&slice, 1};
}

std::string field_of(const grpc::Status& status) {
  v1::StatusDetails details;
  v1::Fault fault;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  if (details.details_size() == 0) return "";
  EXPECT_TRUE(details.details(0).UnpackTo(&fault));
  return fault.field();
}

std::string trailing_of(const grpc::ClientContext& context, const std::string& key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

v1::GenerateRequest generate_request(const std::vector<int32_t>& prompt, int64_t max_values,
                                     uint64_t seed) {
  v1::GenerateRequest request;
  if (!prompt.empty()) {
    request.mutable_values()->mutable_values()->Add(prompt.begin(), prompt.end());
  }
  request.set_max_values(max_values);
  request.mutable_sampling()->set_seed(seed);
  return request;
}

v1::ScoreRequest score_request(const std::vector<int32_t>& values) {
  v1::ScoreRequest request;
  request.mutable_values()->mutable_values()->Add(values.begin(), values.end());
  return request;
}

}  // namespace runnel
