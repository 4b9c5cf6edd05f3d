// Whatever bytes arrive, every call gets a status other than INTERNAL and UNKNOWN, and the server
// keeps running.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/calls/state_token.h"
#include "server/grpc/convert.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/allocation_limit.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

namespace reflection = grpc::reflection::v1alpha;
using Reflection = reflection::ServerReflection;
using ::testing::HasSubstr;

grpc::Status call_bytes(TestServer& test, const std::string& method, const std::string& bytes) {
  return test.call_raw(method, bytes).status;
}

const std::vector<std::string>& methods() {
  static const std::vector<std::string> kMethods = {
      "/runnel.v1.Inference/Generate",     "/runnel.v1.Inference/Score",
      "/runnel.v1.Sessions/CreateSession", "/runnel.v1.Sessions/GetSession",
      "/runnel.v1.Sessions/ListSessions",  "/runnel.v1.Sessions/DeleteSession",
      "/runnel.v1.Models/ListModels",      "/runnel.v1.Models/GetModel",
      "/runnel.v1.Sessions/ListStates"};
  return kMethods;
}

void expect_serving(TestServer& test) {
  EXPECT_TRUE(test.generate(generate_request({1}, 3)).status.ok());
}

reflection::ServerReflectionRequest request_for(const std::string& symbol) {
  reflection::ServerReflectionRequest request;
  request.set_file_containing_symbol(symbol);
  return request;
}

TEST(Hostile, BytesThatDoNotParseAreInvalidArgument) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  for (const std::string& method : methods()) {
    // A length beyond the end of the message.
    const grpc::Status status = call_bytes(test, method,
                                           "\x0a\x7f"
                                           "abc");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("do not parse")) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("the request is not a runnel.v1."));
  }
  expect_serving(test);
}

// Neither the entry nor the state of a call leaks, as if an exception had reached the library.
TEST(Hostile, ACallIsRefusedIfMemoryForItsRequestRunsOut) {
  TestServer test(served_fake("fake"));
  const std::vector<int32_t> many(200'000, 1);
  v1::CreateSessionRequest create;
  create.set_id(std::string(300'000, 'x'));
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"Inference/Generate", generate_request(many, 3).SerializeAsString()},
      {"Inference/Score", score_request(many).SerializeAsString()},
      {"Sessions/CreateSession", create.SerializeAsString()}};
  for (const auto& [method, bytes] : calls) {
    grpc::Status status;
    {
      const AllocationLimit limit(250'000);
      status = call_bytes(test, "/runnel.v1." + method, bytes);
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("no memory for this call")) << method;
    EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 0; })) << method;
    test.expect_free(8);
  }
  expect_serving(test);
}

// Memory runs out after the request was read, on the server's own threads.
TEST(Hostile, ACallEndsIfMemoryRunsOutAfterItsRequest) {
  // The second step waits until memory is limited. Later ones could reuse memory freed before.
  std::binary_semaphore is_short(0);
  const auto on_submit = [&, steps = 0]() mutable {
    if (++steps != 2) return;
    EXPECT_TRUE(is_short.try_acquire_for(kPatience));
  };
  TestServer test(
      served_fake("fake", on_submit, {}, {.slots = 400, .rows = 8, .values = 32, .steps = 1}));
  const auto refused = [](const grpc::Status& status) {
    return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
           status.error_message().find("no memory for this call") != std::string::npos;
  };
  {
    v1::GenerateRequest request = generate_request({1}, 50'000);
    request.set_top_log_probs(20);
    request.mutable_delivery()->set_max_values(1000);
    request.mutable_delivery()->mutable_max_delay()->set_seconds(60);
    grpc::ClientContext context;
    const auto stream = test.inference->Generate(&context, request);
    v1::GenerateResponse response;
    ASSERT_TRUE(stream->Read(&response));
    const AllocationLimit limit(20'000);  // less than one group of values
    is_short.release();
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(refused(status)) << status.error_code() << ": " << status.error_message();
  }
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(test.create("").ok());
  {
    const AllocationLimit limit(20'000);  // less than one page of sessions
    v1::ListSessionsRequest request;
    request.set_page_size(1000);
    v1::ListSessionsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(refused(test.sessions->ListSessions(&context, request, &response)));
  }
  EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
}

// The server allocates all memory that grows with a request before its scheduler gets the call.
TEST(Hostile, TheSchedulerAllocatesNoMemoryForACall) {
  TestServer test(served_fake("fake", {}, {}, kTestLimits, fake_spec(0, true)));
  const std::vector<int32_t> many(60'000, 1);
  v1::ScoreRequest chunk = score_request(many);
  chunk.set_begin(true);
  v1::GenerateRequest request = generate_request(many, 3);
  request.set_begin(true);
  const AllocationLimit limit(400'000);  // less than twice the values
  EXPECT_EQ(test.score({chunk}).log_probs.size(), many.size());
  const Generated generated = test.generate(request);
  EXPECT_TRUE(generated.status.ok()) << generated.status.error_message();
}

TEST(Hostile, ACallWithoutMemoryForItsRecordIsNotRetried) {
  TestServer test(served_fake("fake"));
  v1::GenerateRequest request = generate_request({1}, 10'000);
  request.set_request_id("long");
  request.set_keep(true);
  {
    const AllocationLimit limit(200'000);  // less than a record of the call's values
    EXPECT_TRUE(test.generate(request).status.ok());
  }
  EXPECT_EQ(test.generate(request).status.error_code(), grpc::StatusCode::ABORTED);
}

// The session is ended by a destructor, so an exception would end the process.
TEST(Hostile, ACallWithATokenMayEndWithoutMemory) {
  const auto model = std::make_shared<const ServedModel>(served_fake("fake"));
  std::optional<PassingSession> session;
  session.emplace(model, SessionKey{"", std::string(300'000, 's')});
  std::binary_semaphore is_short(0);
  std::thread ending([&] {
    is_short.acquire();
    session.reset();
  });
  const AllocationLimit limit(250'000);  // less than a copy of the session's id
  is_short.release();
  ending.join();
  EXPECT_FALSE(session);
}

// Once the first chunk is answered, its memory is free for other calls.
TEST(Hostile, AScoreCallHoldsTheMemoryOfAChunkUntilItIsAnswered) {
  ServerOptions options;
  options.host.call_bytes = 2 << 20;
  TestServer test(served_fake("fake"), options);
  const v1::ScoreRequest chunk = score_request(std::vector<int32_t>(100'000, 1));
  struct Scoring {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ScoreRequest, v1::ScoreResponse>> stream;
  };
  std::vector<std::unique_ptr<Scoring>> calls;
  v1::ScoreResponse response;
  for (int i = 0; i < 3; ++i) {
    // The client gets the answer a moment before the server frees the memory.
    EXPECT_TRUE(eventually([&] {
      auto call = std::make_unique<Scoring>();
      call->stream = test.inference->Score(&call->context);
      const bool answered = call->stream->Write(chunk) && call->stream->Read(&response);
      if (answered) calls.push_back(std::move(call));
      return answered;
    }));
  }
  for (const auto& call : calls) {
    EXPECT_TRUE(call->stream->WritesDone());
    EXPECT_TRUE(call->stream->Read(&response));
    EXPECT_EQ(response.total().values(), 99'999);
    EXPECT_TRUE(call->stream->Finish().ok());
  }
}

TEST(Hostile, CallsKeepToTheirMemoryLimit) {
  ServerOptions options;
  options.host.call_bytes = 16 << 20;
  TestServer test(served_fake("fake"), options);
  // A stream for 64 samples with all their top log-probabilities would need 24 MB twice.
  v1::GenerateRequest large = generate_request({1}, 3);
  large.set_samples(64);
  large.set_top_log_probs(20);
  const Generated refused = test.generate(large);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << "it never can";
  EXPECT_THAT(refused.status.error_message(), HasSubstr("limits.call_bytes allows 16777216"));
  expect_serving(test);
}

TEST(Hostile, DescriptionsOfAModelCountAgainstCallBytes) {
  Spec spec = fake_spec();
  spec.symbols.assign(20'000, std::string(40, 'x'));
  ServerOptions options;
  options.host.call_bytes =
      2 << 20;  // less than its JSON and its symbols, as a message and encoded
  TestServer test(served_fake("fake", {}, {}, kTestLimits, spec), options);
  const ServedModel& model = *test.server.models().all()->at("fake");
  const v1::ModelInfo info = model_message(model, {});
  EXPECT_GT(model.described_bytes, 2 << 20);
  EXPECT_GE(model.described_bytes,
            static_cast<int64_t>(info.SpaceUsedLong() + info.ByteSizeLong()));
  for (const char* method : {"GetModel", "ListModels"}) {
    const grpc::Status status = call_bytes(test, std::string("/runnel.v1.Models/") + method, "");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("limits.call_bytes")) << method;
  }
  expect_serving(test);
}

TEST(Hostile, ManySmallFieldsAreRefusedBeforeTheyTakeMemory) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  std::string stops = generate_request({1}, 3).SerializeAsString();
  for (int i = 0; i < 400'000; ++i) stops += std::string("\x4a\x00", 2);  // stop = 9, empty
  const grpc::Status status = call_bytes(test, "/runnel.v1.Inference/Generate", stops);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("too many small fields"));
  v1::GenerateRequest longest = generate_request(std::vector<int32_t>(500'000, 1), 1);
  EXPECT_TRUE(test.generate(longest).status.ok());
  expect_serving(test);
}

// Anybody may ask for reflection, even without a key.
TEST(Hostile, ReflectionRefusesManySmallFields) {
  TestServer test(served_fake("fake"));
  std::string fields;
  for (int i = 0; i < 500'000; ++i) fields += std::string("\x12\x00", 2);  // unknown, and empty
  const grpc::Status status =
      call_bytes(test, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", fields);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("the request has 1000000 bytes"));
  // A stream that waits for its next request holds no memory.
  grpc::ClientContext context;
  const auto stub = Reflection::NewStub(test.channel);
  const auto stream = stub->ServerReflectionInfo(&context);
  const reflection::ServerReflectionRequest request = request_for("runnel.v1.Inference");
  for (int i = 0; i < 3; ++i) {
    reflection::ServerReflectionResponse response;
    ASSERT_TRUE(stream->Write(request));
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_GT(response.file_descriptor_response().file_descriptor_proto_size(), 0);
    EXPECT_TRUE(eventually([&] {
      return test.server.context().memory.held() == 0 && test.server.active_streams() == 0;
    }));
  }
  EXPECT_TRUE(stream->WritesDone());
  EXPECT_TRUE(stream->Finish().ok());
}

// The server holds the memory of an answer until the client has taken it.
TEST(Hostile, AClientOfReflectionThatReadsNothingIsCutOff) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  TestServer test(served_fake("fake"), {}, clock);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stub = Reflection::NewStub(test.channel);
  const auto stream = stub->ServerReflectionInfo(&context);
  const reflection::ServerReflectionRequest request = request_for("runnel.v1.Inference");
  EXPECT_TRUE(eventually([&] {
    clock.advance(2 * test.server.context().stall_timeout);
    test.server.tend();
    return !stream->Write(request);
  }));
  EXPECT_TRUE(eventually([&] {
    return test.server.context().memory.held() == 0 && test.server.active_streams() == 0;
  }));
  reflection::ServerReflectionResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// The library would decompress the message before it checks the size.
TEST(Hostile, ACompressedMessageIsRefused) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::GenerateRequest request = generate_request(std::vector<int32_t>(100'000, 1), 1);
    const auto stream = test.inference->Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  expect_serving(test);
}

TEST(Hostile, AStringThatIsNotUtf8IsInvalidArgument) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  for (const std::string& method : methods()) {
    if (method.ends_with("ListModels")) continue;  // has no fields, so unknown ones are skipped
    EXPECT_EQ(call_bytes(test, method, "\x0a\x02\xff\xfe").error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << method;
  }
}

TEST(Hostile, AChunkThatDoesNotParseIsNotTheEndOfAScore) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  grpc::GenericStub stub(test.channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, "/runnel.v1.Inference/Score", &queue);
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return ok;
  };
  stream->StartCall(nullptr);
  next();
  stream->Write(bytes_of(score_request({1, 2, 3}).SerializeAsString()), nullptr);
  next();
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  EXPECT_TRUE(next());
  stream->WriteLast(bytes_of("\xff\xff"), grpc::WriteOptions(), nullptr);
  next();
  stream->Read(&response, nullptr);
  EXPECT_FALSE(next()) << "no total";
  grpc::Status status;
  stream->Finish(&status, nullptr);
  next();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  test.expect_free(8);
}

bool is_expected(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return true;
    default:
      return false;
  }
}

std::string changed(std::string bytes, std::mt19937& random) {
  for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 3) {
      case 0:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      case 1:
        if (!bytes.empty()) bytes.erase(at, 1);
        break;
      default:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
    }
  }
  return bytes;
}

TEST(Hostile, DamagedRequestsGetOnlyExpectedStatuses) {
  EngineOptions options;
  options.max_values = 64;  // ends requests that happen to be valid soon
  options.samples = 4;
  TestServer test(served_bundle(small_symbol_spec(), 1, options));
  v1::GenerateRequest full = generate_request({1, 2}, 5);
  full.mutable_origin()->set_session("s");
  full.set_samples(2);
  full.mutable_max_time()->set_nanos(1000);
  full.mutable_sampling()->set_temperature(1);
  full.mutable_sampling()->set_top_p(0.5F);
  full.add_stop()->add_values(3);
  full.set_top_log_probs(3);
  full.set_request_id("r");
  full.mutable_delivery()->set_max_values(3);
  v1::ListSessionsRequest list;
  list.set_page_size(3);
  list.set_page_token("00112233445566");
  const std::vector<std::string> seeds = {full.SerializeAsString(),
                                          generate_request({1}, 3).SerializeAsString(),
                                          score_request({1, 2, 3}).SerializeAsString(),
                                          list.SerializeAsString(),
                                          "\x0a\x0dsmall-symbols\x12\x01s",
                                          ""};
  std::mt19937 random(23);
  for (int i = 0; i < 1500; ++i) {
    const std::string& method = methods()[random() % methods().size()];
    const grpc::Status status =
        call_bytes(test, method, changed(seeds[random() % seeds.size()], random));
    EXPECT_TRUE(is_expected(status.error_code()))
        << method << " " << status.error_code() << " " << status.error_message();
    if (!status.ok()) {
      EXPECT_FALSE(status.error_message().empty());
    }
  }
  EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
}

TEST(Hostile, UnknownMethodsAreUnimplemented) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  EXPECT_EQ(call_bytes(test, "/runnel.v1.Inference/Fork", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call_bytes(test, "/x/y", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  expect_serving(test);
}

// Sends raw bytes to the port and closes the connection.
void send_raw(int port, const std::string& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(socket, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  close(socket);
}

TEST(Hostile, OthersAreServedAfterBytesThatAreNotHttp2) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const std::string& address = test.server.address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  std::mt19937 random(29);
  for (int i = 0; i < 200; ++i) {
    std::string bytes;
    if (i % 3 == 0) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if (i % 3 == 1) bytes = "GET / HTTP/1.1\r\n\r\n";
    for (int n = static_cast<int>(random() % 400); n > 0; --n) bytes += static_cast<char>(random());
    send_raw(port, bytes);
  }
  expect_serving(test);
}

TEST(Hostile, MetadataWithoutEndIsRefused) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  context.AddMetadata("x-long", std::string(200000, 'a'));
  v1::ListModelsResponse response;
  const grpc::Status status = test.models->ListModels(&context, {}, &response);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << "the server hangs";
  // The server may close the connection with the call. The next call is served.
  EXPECT_TRUE(eventually([&] { return test.generate(generate_request({1}, 3)).status.ok(); }));
}

TEST(Hostile, AStormOfCallsLeaksNothing) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 60; ++i) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::milliseconds(random() % 12));
        if (random() % 2 == 0) {
          v1::GenerateRequest request = generate_request({1}, 500);
          request.set_samples(1 + static_cast<int>(random() % 3));
          const auto reader = test.inference->Generate(&context, request);
          v1::GenerateResponse response;
          while (random() % 5 != 0 && reader->Read(&response)) {
          }
          if (random() % 2 == 0) context.TryCancel();
          (void)reader->Finish();
        } else {
          const auto stream = test.inference->Score(&context);
          stream->Write(score_request(std::vector<int32_t>(200, 1)));
          v1::ScoreResponse response;
          if (random() % 2 == 0) stream->Read(&response);
          if (random() % 2 == 0) context.TryCancel();
          stream->WritesDone();
          (void)stream->Finish();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 0; }));
  test.expect_free(8);
  expect_serving(test);
}

}  // namespace
}  // namespace runnel
