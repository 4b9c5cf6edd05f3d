// Sessions that are forked and moved, and stored states: ForkSession, RewindSession, ExportSession,
// ImportSession, ListStates.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "engine/rewinds.h"
#include "models/state/file.h"
#include "server/calls/session_changes.h"
#include "server/process/http_routes.h"
#include "storage/memory_store.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/server/http/http_client.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Makes a session that has read these values.
void feed(TestServer& test, const std::string& id, const std::vector<int32_t>& values) {
  ASSERT_TRUE(test.create(id).ok());
  v1::GenerateRequest request = generate_request(values, 0);
  request.mutable_origin()->set_session(id);
  ASSERT_TRUE(test.generate(request).status.ok());
}

std::vector<int32_t> go_on(TestServer& test, const std::string& id) {
  v1::GenerateRequest request = generate_request({}, 12, 7);
  request.mutable_origin()->set_session(id);
  Generated generated = test.generate(request);
  EXPECT_TRUE(generated.status.ok()) << generated.status.error_message();
  return generated.values[0];
}

grpc::Status fork(TestServer& test, const std::string& id, const std::vector<std::string>& children,
                  std::optional<int> count = {}, v1::ForkSessionResponse* made = nullptr) {
  grpc::ClientContext context;
  v1::ForkSessionRequest request;
  request.set_id(id);
  for (const std::string& child : children) request.add_children(child);
  if (count) request.set_count(*count);
  v1::ForkSessionResponse response;
  return test.sessions->ForkSession(&context, request, made == nullptr ? &response : made);
}

grpc::Status save(TestServer& test, const std::string& id, std::string& file) {
  grpc::ClientContext context;
  v1::ExportSessionRequest request;
  request.set_id(id);
  const auto reader = test.sessions->ExportSession(&context, request);
  v1::ExportSessionResponse response;
  file.clear();
  while (reader->Read(&response)) file += response.data();
  return reader->Finish();
}

struct Load {
  std::string id = "loaded";
  bool allow_inexact = false;
  size_t piece = 100;
  bool targets = true;  // whether a target is sent first
};

grpc::Status load(TestServer& test, std::string_view file, const Load& how = {},
                  v1::Session* made = nullptr) {
  grpc::ClientContext context;
  v1::Session session;
  const auto writer = test.sessions->ImportSession(&context, made == nullptr ? &session : made);
  v1::ImportSessionRequest request;
  request.mutable_target()->set_id(how.id);
  request.mutable_target()->set_allow_inexact(how.allow_inexact);
  bool going = !how.targets || writer->Write(request);
  for (size_t at = 0; going && at < file.size(); at += how.piece) {
    request.set_data(std::string(file.substr(at, how.piece)));
    going = writer->Write(request);
  }
  writer->WritesDone();
  return writer->Finish();
}

TEST(SessionState, ForksContinueLikeTheirParent) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  feed(test, "a", {1, 2, 3});
  v1::ForkSessionResponse made;
  ASSERT_TRUE(fork(test, "a", {"b", "c"}, {}, &made).ok());
  ASSERT_EQ(made.sessions_size(), 2);
  EXPECT_EQ(made.sessions(0).id(), "b");
  EXPECT_EQ(made.sessions(1).position(), 3);
  ASSERT_TRUE(fork(test, "a", {}, 3, &made).ok());
  ASSERT_EQ(made.sessions_size(), 3);
  EXPECT_THAT(made.sessions(0).id(), StartsWith("s-"));
  test.expect_free(2);
  const auto expected = go_on(test, "a");
  EXPECT_EQ(go_on(test, "c"), expected);
  EXPECT_EQ(go_on(test, made.sessions(2).id()), expected);
}

TEST(SessionState, AForkNamesTheFault) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  feed(test, "a", {1, 2, 3});
  EXPECT_THAT(fork(test, "a", {"b"}, 1).error_message(), HasSubstr("both set"));
  EXPECT_EQ(fork(test, "a", {}, 0).error_code(), kInvalid);
  EXPECT_EQ(fork(test, "a", {}, 1 << 30).error_code(), kInvalid);
  EXPECT_EQ(fork(test, "b", {"c"}).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(fork(test, "a", {"a"}).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(fork(test, "a", {}, 8).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  test.expect_free(7);
}

TEST(SessionState, ARewoundSessionContinuesLikeOneThatStoppedThere) {
  EngineOptions options;
  options.rewind_values = 6;
  options.rewind_every = 2;
  ModelLimits limits = kTestLimits;
  limits.slots *= static_cast<int>(1 + snapshots_of(options, limits.steps));
  TestServer test(served_bundle(small_rwkv7_spec(), 1, options, limits));
  feed(test, "a", {1, 2, 3, 4, 5});
  const auto expected = go_on(test, "a");
  feed(test, "b", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto rewind = [&](int64_t position, v1::Session& session) {
    grpc::ClientContext context;
    v1::RewindSessionRequest request;
    request.set_id("b");
    request.set_position(position);
    return test.sessions->RewindSession(&context, request, &session);
  };
  v1::Session session;
  EXPECT_EQ(rewind(2, session).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  ASSERT_TRUE(rewind(5, session).ok());
  EXPECT_EQ(session.id(), "b");
  EXPECT_EQ(session.position(), 5);
  EXPECT_EQ(session.state(), v1::Session::IDLE);
  EXPECT_EQ(go_on(test, "b"), expected);
}

TEST(SessionState, AStateContinuesOnAnotherServerWithTheSameBits) {
  TestServer here(served_bundle(small_rwkv7_spec(), 1));
  TestServer there(served_bundle(small_rwkv7_spec(), 1));
  feed(here, "a", {1, 2, 3, 4, 5});
  std::string file;
  ASSERT_TRUE(save(here, "a", file).ok());
  v1::Session made;
  ASSERT_TRUE(load(there, file, {.id = "b"}, &made).ok());
  EXPECT_EQ(made.id(), "b");
  EXPECT_EQ(made.position(), 5);
  EXPECT_EQ(made.state(), v1::Session::IDLE);
  EXPECT_EQ(go_on(there, "b"), go_on(here, "a"));
  ASSERT_TRUE(load(there, file, {.id = "", .piece = 1 << 19}, &made).ok());
  EXPECT_THAT(made.id(), StartsWith("s-"));
  EXPECT_EQ(load(there, file, {.id = "b"}).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  there.expect_free(6);
}

TEST(SessionState, AStateMayBeSavedByOneDoorAndLoadedByAnother) {
  TestServer test(served_bundle(small_rwkv7_spec(), 1));
  HttpServer http({.connections = {.in_all = 4}}, http_routes(test.server.context(), Gate("", "")),
                  test.log);
  EXPECT_TRUE(http.start(listen_on("127.0.0.1:0").value()).ok());
  const auto ask = [&](const std::string& method, const std::string& id, const std::string& body) {
    HttpClient client(http.address());
    client.send(method + " /v1/sessions/" + id + "/state HTTP/1.1\r\nHost: localhost\r\n" +
                "Content-Type: application/octet-stream\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.response();
  };
  feed(test, "a", {1, 2, 3, 4, 5});
  std::string file;
  ASSERT_TRUE(save(test, "a", file).ok());
  EXPECT_EQ(ask("GET", "a", "").body, file);
  EXPECT_EQ(ask("PUT", "b", file).status, 200);
  ASSERT_TRUE(load(test, ask("GET", "b", "").body, {.id = "c"}).ok());
  const auto expected = go_on(test, "a");
  EXPECT_EQ(go_on(test, "b"), expected);
  EXPECT_EQ(go_on(test, "c"), expected);
  http.stop();
}

TEST(SessionState, AFileThatIsRefusedChangesNothing) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  feed(test, "a", {1, 2, 3});
  std::string file;
  ASSERT_TRUE(save(test, "a", file).ok());
  std::string bad = file;
  bad[bad.size() - 1] ^= 1;
  EXPECT_EQ(load(test, bad).error_code(), kInvalid);
  EXPECT_THAT(load(test, file.substr(0, file.size() - 1)).error_message(), HasSubstr("cut short"));
  EXPECT_THAT(load(test, "x" + file).error_message(), HasSubstr("expected 'RNLSTATE'"));
  EXPECT_THAT(load(test, file, {.targets = false}).error_message(), HasSubstr("has no target"));
  EXPECT_THAT(load(test, {}, {.targets = false}).error_message(), HasSubstr("has no message"));
  EXPECT_EQ(load(test, file, {.id = "a b"}).error_code(), kInvalid);
  EXPECT_EQ(save(test, "none", bad).error_code(), grpc::StatusCode::NOT_FOUND);
  test.expect_free(7);
  EXPECT_TRUE(load(test, file).ok());
}

TEST(SessionState, AnotherModelAndAnotherNumericsIdAreRefused) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  feed(test, "a", {1, 2, 3});
  std::string file;
  ASSERT_TRUE(save(test, "a", file).ok());
  TestServer other(served_bundle(small_gated_spec(), 1));
  EXPECT_EQ(load(other, file, {.allow_inexact = true}).error_code(), kPrecondition);

  // The same state with another numerics id and with a number that is too small.
  StateReader reader(
      [](const StateHeader& header) { return Result<StateLayout>(layout_of(header)); }, nullptr);
  ASSERT_TRUE(reader.add(std::as_bytes(std::span(file))).ok());
  Result<StateImage> image = reader.finish();
  StateLayout layout = layout_of(*reader.header());
  const auto write = [&] {
    return StateWriter(reader.header()->model, layout, *image, nullptr).next(1 << 20);
  };
  const float small = 1e-40F;
  std::memcpy(image->bytes.data(), &small, sizeof(small));
  EXPECT_THAT(load(test, write()).error_message(), HasSubstr("has 1 numbers below 1.2e-38"));
  EXPECT_TRUE(load(test, write(), {.id = "small", .allow_inexact = true}).ok());
  EXPECT_EQ(field_of(load(test, write())), "allow_inexact");
  layout.numerics = "other";
  EXPECT_EQ(load(test, write()).error_code(), kPrecondition);
  EXPECT_EQ(field_of(load(test, write())), "allow_inexact");
  EXPECT_TRUE(load(test, write(), {.id = "other", .allow_inexact = true}).ok());
}

// Another server continues the session with the same bits, so it does not flush its state.
TEST(SessionState, ASessionInAStoreKeepsItsSmallNumbers) {
  const auto shelf = std::make_shared<MemoryShelf>();
  const auto server = [&] {
    ServerOptions options;
    options.host.storage.store =
        std::make_shared<MemoryStore>(shelf, StoreSettings().times, real_clock());
    return std::make_unique<TestServer>(served_bundle(small_symbol_spec(), 1), options);
  };
  const auto model = [](TestServer& test) { return *test.server.models().find({}, ""); };
  const auto state_of = [&](TestServer& test, const std::string& id) {
    auto image = std::make_shared<StateImage>();
    std::promise<Status> exported;
    export_session(test.server.context(), model(test), Caller(), id, image,
                   [&](const auto& moved) { exported.set_value(moved.status()); });
    EXPECT_TRUE(exported.get_future().get().ok());
    return image;
  };
  const auto one = server();
  const auto two = server();
  feed(*one, "a", {1, 2, 3});
  const auto image = state_of(*one, "a");
  const float small = 1e-40F;
  std::memcpy(image->bytes.data(), &small, sizeof(small));
  std::promise<Status> imported;
  import_session(one->server.context(), model(*one), Caller(), "b", image,
                 [&](const auto& made) { imported.set_value(made.status()); });
  ASSERT_TRUE(imported.get_future().get().ok());
  float found = 0;
  std::memcpy(&found, state_of(*two, "b")->bytes.data(), sizeof(found));
  EXPECT_EQ(found, small);
}

TEST(SessionState, StoredStatesAreListed) {
  ServedModel model = served_bundle(small_symbol_spec(), 1);
  model.states = {{"a", 2, "here"}, {"b", 3, "elsewhere"}};
  TestServer test(std::move(model));
  grpc::ClientContext context;
  v1::ListStatesResponse listed;
  ASSERT_TRUE(test.sessions->ListStates(&context, {}, &listed).ok());
  ASSERT_EQ(listed.states_size(), 2);
  EXPECT_EQ(listed.states(0).name(), "a");
  EXPECT_EQ(listed.states(1).position(), 3);
  EXPECT_EQ(listed.states(1).numerics(), "elsewhere");
}

TEST(SessionState, AServerWithASealKeyAcceptsOnlyItsOwnSeal) {
  const TempDir folder;
  const std::string path = folder.path() + "/seal";
  write_file(path, std::string(32, 's'));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ServerOptions options;
  options.host.seal_keys = path;
  TestServer sealed(served_bundle(small_symbol_spec(), 1), options);
  TestServer plain(served_bundle(small_symbol_spec(), 1));
  feed(sealed, "a", {1, 2, 3});
  feed(plain, "a", {1, 2, 3});
  std::string with;
  std::string without;
  ASSERT_TRUE(save(sealed, "a", with).ok());
  ASSERT_TRUE(save(plain, "a", without).ok());
  EXPECT_TRUE(load(sealed, with).ok());
  EXPECT_EQ(load(sealed, without).error_code(), kPrecondition);
  EXPECT_EQ(load(plain, with).error_code(), kPrecondition);
}

TEST(SessionState, AnImportReservesItsMemoryFirst) {
  ServerOptions options;
  options.host.call_bytes = 128 << 10;
  TestServer test(served_bundle(small_symbol_spec(), 1), options);
  // A call frees its memory a moment after its client has the answer.
  const auto nothing_held = [&] { return test.server.context().memory.held() == 0; };
  ASSERT_TRUE(test.create("a").ok());
  ASSERT_TRUE(eventually(nothing_held));
  std::string file;
  EXPECT_EQ(save(test, "a", file).error_code(), kInvalid) << "it never can";
  ASSERT_TRUE(eventually(nothing_held));
  EXPECT_EQ(load(test, std::string(100'000, 'x'), {.piece = 50'000}).error_code(), kInvalid);
  EXPECT_TRUE(eventually([&] { return test.get("a").ok(); })) << "the call gives its memory back";
}

TEST(SessionState, AnImportHoldsMemoryForItsHeaderUntilItIsRead) {
  ServerOptions options;
  options.host.call_bytes = 8 << 20;  // room for one header
  TestServer test(served_bundle(small_symbol_spec(), 1), options);
  feed(test, "a", {1, 2, 3});
  std::string file;
  ASSERT_TRUE(save(test, "a", file).ok());
  grpc::ClientContext context;
  v1::Session session;
  const auto writer = test.sessions->ImportSession(&context, &session);
  v1::ImportSessionRequest request;
  request.mutable_target()->set_id("b");
  ASSERT_TRUE(writer->Write(request));
  // The import must hold its memory before another import can take it.
  ASSERT_TRUE(
      eventually([&] { return test.server.context().memory.held() >= kStateHeaderMemory; }));
  EXPECT_EQ(load(test, "x").error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  request.set_data(file);
  ASSERT_TRUE(writer->Write(request));
  EXPECT_TRUE(eventually([&] { return load(test, file).ok(); }));
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
}

TEST(SessionState, AnImportRefusesEmptyMessages) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  grpc::ClientContext context;
  v1::Session session;
  const auto writer = test.sessions->ImportSession(&context, &session);
  v1::ImportSessionRequest request;
  request.mutable_target();
  ASSERT_TRUE(writer->Write(request));
  request.set_data("");
  ASSERT_TRUE(writer->Write(request));
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_THAT(status.error_message(), HasSubstr("neither target nor data"));
}

TEST(SessionState, AnImportThatTakesTooLongIsAborted) {
  ServerOptions options;
  options.host.stall_timeout = std::chrono::seconds(1);
  Clock clock{TimePoint(std::chrono::hours(1))};
  TestServer test(served_bundle(small_symbol_spec(), 1), options, clock);
  grpc::ClientContext context;
  v1::Session session;
  const auto writer = test.sessions->ImportSession(&context, &session);
  v1::ImportSessionRequest request;
  request.mutable_target();
  ASSERT_TRUE(writer->Write(request));
  request.set_data(std::string("RNLSTATE\1\0\0\0\0\0\x10\0", 16));  // announces a header of 1 MiB
  ASSERT_TRUE(writer->Write(request));
  // A call may wait ten times as long in all. From here on, no single message is late.
  ASSERT_TRUE(eventually([&] { return test.server.active_streams() == 1; }));
  test.server.context().stall_timeout = std::chrono::hours(1);
  request.set_data(" ");
  EXPECT_TRUE(eventually([&] {
    clock.advance(std::chrono::seconds(1));
    test.server.tend();
    return !writer->Write(request);
  }));
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("too long in all"));
}

}  // namespace
}  // namespace runnel
