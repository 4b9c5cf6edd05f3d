// The server outside its services: health, reflection, ports, and several servers in one process.

#include "server/process/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using Health = grpc::health::v1::HealthCheckResponse;

Health::ServingStatus check(TestServer& test, const std::string& service) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  Health response;
  const grpc::Status status = test.health->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return Health::SERVICE_UNKNOWN;
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status();
}

constexpr std::array kServices = {"", "runnel.v1.Inference", "runnel.v1.Sessions",
                                  "runnel.v1.Models", "runnel.v1.Admin"};

// A stream of the health of a service.
class Watch {
 public:
  Watch(TestServer& test, const std::string& service) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    reader_ = test.health->Watch(&context_, request);
  }
  // The next health; UNKNOWN at the end.
  Health::ServingStatus next() {
    Health response;
    return reader_->Read(&response) ? response.status() : Health::UNKNOWN;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<Health>> reader_;
};

TEST(Health, IsNotServingUntilReadyAndAgainWhenDraining) {
  TestServer test;
  for (const char* name : kServices) EXPECT_EQ(check(test, name), Health::NOT_SERVING) << name;
  EXPECT_EQ(check(test, "other"), Health::SERVICE_UNKNOWN);
  ASSERT_TRUE(test.server.models().add(served_bundle(small_symbol_spec(), 1)).ok());
  EXPECT_EQ(check(test, ""), Health::NOT_SERVING);
  test.server.ready();
  std::vector<std::unique_ptr<Watch>> watches;
  for (const char* name : kServices) {
    EXPECT_EQ(check(test, name), Health::SERVING) << name;
    watches.push_back(std::make_unique<Watch>(test, name));
    EXPECT_EQ(watches.back()->next(), Health::SERVING) << name;
  }
  test.server.drain(Duration(0));
  for (const auto& watch : watches) EXPECT_EQ(watch->next(), Health::NOT_SERVING);
}

TEST(Health, AnswersWhileTheModelIsBusy) {
  std::latch go(1);
  TestServer test(served_fake("fake", [&] { go.wait(); }));
  std::thread client([&] { test.generate(generate_request({1, 2}, 2)); });
  EXPECT_TRUE(eventually([&] { return test.server.active_streams() == 1; }));
  EXPECT_EQ(check(test, ""), Health::SERVING);
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_TRUE(test.models->ListModels(&context, {}, &models).ok());
  go.count_down();
  client.join();
}

TEST(Reflection, NamesTheServicesAndTheirMethods) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const std::string method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  // Sets list_services, field 7 of the request.
  RawOutcome listed = test.call_raw(method, "\x3a\x01*");
  ASSERT_TRUE(listed.status.ok()) << listed.status.error_message();
  ASSERT_EQ(listed.responses.size(), 1U);
  for (const char* name : {"runnel.v1.Inference", "runnel.v1.Sessions", "runnel.v1.Models",
                           "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}) {
    EXPECT_THAT(listed.responses[0], HasSubstr(name));
  }
  // Sets file_containing_symbol, field 4.
  for (const std::string& name :
       std::vector<std::string>{"runnel.v1.Inference", "runnel.v1.Sessions", "runnel.v1.Models",
                                "grpc.health.v1.Health", "google.protobuf.FieldDescriptorProto"}) {
    std::string request = "\x22";
    request += static_cast<char>(name.size());
    request += name;
    const RawOutcome file = test.call_raw(method, request);
    ASSERT_EQ(file.responses.size(), 1U);
    EXPECT_THAT(file.responses[0], HasSubstr(".proto")) << name;
    EXPECT_LT(file.responses[0].size(), 10U << 10) << "more than the server reserves memory for";
  }
}

TEST(Server, APortThatIsTakenIsAnError) {
  TestServer first;
  std::ostringstream text;
  const EventLog log("info", false, text);
  ServerOptions options;
  options.grpc.address = first.server.address();
  Server second(options, log);
  const Status status = second.start();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("cannot listen on " + first.server.address()));
}

TEST(Server, ListensOnAUnixSocket) {
  const TempDir directory;
  ServerOptions options;
  options.grpc.address = "unix:" + directory.path() + "/socket";
  TestServer test(served_bundle(small_symbol_spec(), 1), options);
  EXPECT_EQ(test.server.address(), options.grpc.address);
  EXPECT_TRUE(test.generate(generate_request({1}, 3)).status.ok());
}

TEST(Server, AChannelInTheProcessNeedsNoSocket) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  const auto stub = v1::Models::NewStub(test.server.in_process_channel());
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_TRUE(stub->ListModels(&context, {}, &models).ok());
  EXPECT_EQ(models.models_size(), 1);
}

TEST(Server, BoundsTheStreamsOfAConnection) {
  ServerOptions options;
  options.grpc.streams_per_connection = 2;
  TestServer test(served_fake("fake", slowly), options);
  grpc::ClientContext contexts[2];
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> running;
  v1::GenerateResponse response;
  for (grpc::ClientContext& context : contexts) {
    running.push_back(test.inference->Generate(&context, generate_request({1}, 1 << 20)));
    EXPECT_TRUE(running.back()->Read(&response));
  }
  const auto list_models = [&](grpc::ClientContext& context) {
    v1::ListModelsResponse models;
    return test.models->ListModels(&context, {}, &models).error_code();
  };
  const auto cancel = [&](int i) {
    contexts[i].TryCancel();
    while (running[i]->Read(&response)) {
    }
    EXPECT_EQ(running[i]->Finish().error_code(), grpc::StatusCode::CANCELLED);
  };
  // The client's library delays a third call until one of the two has ended.
  grpc::ClientContext third;
  third.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(list_models(third), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(test.server.active_streams(), 2);
  cancel(0);
  grpc::ClientContext fourth;
  EXPECT_EQ(list_models(fourth), grpc::StatusCode::OK);
  cancel(1);
}

TEST(Server, MayBeMadeAndEndedWithoutACall) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  {
    const Server never_started(ServerOptions(), log);
  }
  for (int i = 0; i < 5; ++i) {
    Server server(ServerOptions(), log);
    ASSERT_TRUE(server.start().ok());
    ASSERT_TRUE(server.models().add(served_fake("fake")).ok());
    server.ready();
  }
}

}  // namespace
}  // namespace runnel
