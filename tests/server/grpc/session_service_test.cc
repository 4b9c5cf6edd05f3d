// The Sessions and Models services.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "engine/rewinds.h"
#include "server/grpc/services.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Sessions, ExistFromCreateToDelete) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  v1::Session session;
  ASSERT_TRUE(test.create("mine", &session).ok());
  EXPECT_EQ(session.id(), "mine");
  EXPECT_EQ(session.model(), "small-symbols");
  EXPECT_EQ(session.position(), 0);
  EXPECT_EQ(session.state(), v1::Session::NEW);
  EXPECT_EQ(session.state_bytes(), small_symbol_spec().state_bytes());
  test.expect_free(7);
  ASSERT_TRUE(test.get("mine", &session).ok());
  EXPECT_EQ(session.id(), "mine");
  ASSERT_TRUE(test.remove("mine").ok());
  EXPECT_EQ(test.get("mine").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(test.remove("mine").error_code(), grpc::StatusCode::NOT_FOUND);
  test.expect_free(8);
}

TEST(Sessions, AnErrorDoesNotRepeatAnInvalidId) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  for (const std::string& id : {std::string(10'000, 'x'), std::string("a b"), std::string()}) {
    for (const grpc::Status& status : {test.get(id), test.remove(id)}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_THAT(status.error_message(), StartsWith("a session's id must be 1 to 128"));
    }
  }
}

TEST(Sessions, TheServerChoosesANameWhereThereIsNone) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  v1::Session first;
  v1::Session second;
  ASSERT_TRUE(test.create("", &first).ok());
  ASSERT_TRUE(test.create("", &second).ok());
  EXPECT_THAT(first.id(), StartsWith("s-"));
  EXPECT_NE(first.id(), second.id());
}

// Blocks a thread until a test opens it.
struct WriterGate {
  void wait() {
    reached.set_value();
    opened.get_future().wait();
  }
  std::promise<void> reached, opened;
};

TEST(Sessions, AnswersWaitForTheirWriterWithoutDelayingTheScheduler) {
  std::ostringstream text;
  const EventLog log("error", false, text);
  ServerContext state(log);
  state.stall_timeout = kPatience;
  ASSERT_TRUE(state.models.add(served_fake("fake")).ok());
  state.models.open();
  const auto service = make_session_service(state);
  grpc::ServerBuilder builder;
  builder.RegisterService(service.get());
  const auto server = builder.BuildAndStart();
  const auto stub = v1::Sessions::NewStub(server->InProcessChannel({}));

  const auto gate = std::make_shared<WriterGate>();
  state.writer.post<&WriterGate::wait>(gate);
  gate->reached.get_future().wait();
  const auto list = [&] {
    grpc::ClientContext context;
    v1::ListSessionsResponse response;
    return stub->ListSessions(&context, {}, &response);
  };
  std::vector<std::future<grpc::Status>> lists;
  for (int i = 0; i < 8; ++i) lists.push_back(std::async(std::launch::async, list));
  EXPECT_TRUE(eventually([&] { return state.calls.count() == 8; }));

  Engine& engine = *(*state.models.find({}, ""))->engine;
  GenerateRequest request;
  request.prompt = {1};
  request.max_values = 200;
  const auto stream =
      std::make_shared<TokenStream>(request.delivery, engine.stream_room(1), 0, [] {});
  ASSERT_TRUE(engine.generate(request, stream).ok());
  EXPECT_TRUE(eventually([&] { return engine.stats().values_sampled == 200; }));
  for (const auto& each : lists) {
    EXPECT_EQ(each.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  }
  gate->opened.set_value();
  for (auto& each : lists) EXPECT_TRUE(each.get().ok());
  EXPECT_TRUE(eventually([&] { return state.calls.count() == 0 && state.memory.held() == 0; }));
  server->Shutdown();
}

TEST(Sessions, NamesAreCheckedAndUnique) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("a").ok());
  EXPECT_EQ(test.create("a").error_code(), grpc::StatusCode::ALREADY_EXISTS);
  for (const std::string& bad :
       {std::string("a b"), std::string("a/b"), std::string("\xc3\xa4"), std::string(129, 'a')}) {
    EXPECT_EQ(test.create(bad).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
  }
  EXPECT_TRUE(test.create(std::string(128, 'a')).ok());
}

TEST(Sessions, ARefusalNamesTheFieldOfItsOwnRequest) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("a").ok());
  EXPECT_EQ(field_of(test.create("a")), "id");
  EXPECT_EQ(field_of(test.create("a b")), "id");
  EXPECT_EQ(field_of(test.get("none")), "id");
  EXPECT_EQ(field_of(test.remove("none")), "id");
  const auto fork = [&](const std::string& id, int count, const char* child) {
    grpc::ClientContext context;
    v1::ForkSessionRequest request;
    v1::ForkSessionResponse response;
    request.set_id(id);
    if (count > 0) request.set_count(count);
    if (count == 0) request.add_children(child);
    return test.sessions->ForkSession(&context, request, &response);
  };
  EXPECT_EQ(field_of(fork("none", 1, "")), "id");
  EXPECT_EQ(field_of(fork("a", 0, "a")), "children");
  const grpc::Status many = fork("a", 20, "");
  EXPECT_EQ(many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(field_of(many), "count");
  EXPECT_EQ(many.error_message(),
            "count asks for 20 states, and the server keeps 8 in all; ask for fewer, or start it "
            "with --sessions 20");
}

TEST(Sessions, ARewindBeyondTheEndNamesThePosition) {
  EngineOptions options;
  options.rewind_values = 6;
  options.rewind_every = 2;
  ModelLimits limits = kTestLimits;
  limits.slots *= static_cast<int>(1 + snapshots_of(options, limits.steps));
  TestServer test(served_bundle(small_symbol_spec(), 1, options, limits));
  ASSERT_TRUE(test.create("a").ok());
  grpc::ClientContext context;
  v1::RewindSessionRequest request;
  v1::Session session;
  request.set_id("a");
  request.set_position(300);
  const grpc::Status status = test.sessions->RewindSession(&context, request, &session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(field_of(status), "position");
}

grpc::Status list(TestServer& test, int size, const std::string& token,
                  v1::ListSessionsResponse& page) {
  grpc::ClientContext context;
  v1::ListSessionsRequest request;
  request.set_page_size(size);
  request.set_page_token(token);
  return test.sessions->ListSessions(&context, request, &page);
}

TEST(Sessions, AreListedInPagesById) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  for (const char* id : {"c", "a", "e", "b", "d"}) ASSERT_TRUE(test.create(id).ok());
  for (const int size : {1, 2, 3, 5, 1000, 0}) {
    std::vector<std::string> ids;
    std::string token;
    do {
      v1::ListSessionsResponse page;
      ASSERT_TRUE(list(test, size, token, page).ok());
      for (const v1::Session& session : page.sessions()) ids.push_back(session.id());
      if (size > 0) {
        EXPECT_LE(page.sessions_size(), size);
      }
      token = page.next_page_token();
    } while (!token.empty());
    EXPECT_THAT(ids, ElementsAre("a", "b", "c", "d", "e")) << size;
  }
}

TEST(Sessions, APageOfTheWrongSizeOrWithAForeignTokenIsRefused) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  v1::ListSessionsResponse page;
  for (const int size : {-1, 1001}) {
    const grpc::Status status = list(test, size, "", page);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              "page_size is " + std::to_string(size) + "; it must be between 0 (for 100) and 1000");
  }
  const grpc::Status status = list(test, 1, "abcd", page);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("page_token is not one"));
}

TEST(Models, AreDescribedInFull) {
  TestServer test(served_bundle(small_image_spec(), 1));
  grpc::ClientContext context;
  v1::ListModelsResponse all;
  ASSERT_TRUE(test.models->ListModels(&context, {}, &all).ok());
  ASSERT_EQ(all.models_size(), 1);
  const v1::ModelInfo& info = all.models(0);
  const Spec spec = small_image_spec();
  EXPECT_EQ(info.name(), "small-image");
  EXPECT_EQ(info.parameters(), spec.parameters());
  EXPECT_EQ(info.state_bytes(), spec.state_bytes());
  EXPECT_EQ(info.position_bytes(), 0);
  EXPECT_EQ(info.sessions(), 8);
  EXPECT_EQ(info.sessions_free(), 8);
  EXPECT_EQ(info.backend(), "cpu");
  EXPECT_THAT(info.numerics(), StartsWith("cpu/"));
  EXPECT_EQ(info.weight_digest(), *random_bundle(spec, 1).digest());
  EXPECT_EQ(info.vocabulary(), 256);
  EXPECT_EQ(info.max_length(), 20);
  EXPECT_EQ(info.image().height(), 5);
  EXPECT_EQ(info.image().width(), 4);
  EXPECT_EQ(info.image().channels(), 1);
  EXPECT_TRUE(info.has_begin());
  EXPECT_EQ(info.head(), "mixture_of_logistics");
  EXPECT_TRUE(parse_spec(info.spec_json(), "spec_json").ok());
}

TEST(Models, AHybridReportsTheBytesOfAPosition) {
  const Spec spec = small_hybrid_spec(HybridStyle::kLfm2);
  TestServer test(served_bundle(spec, 1));
  grpc::ClientContext context;
  v1::ModelInfo info;
  ASSERT_TRUE(test.models->GetModel(&context, {}, &info).ok());
  EXPECT_EQ(info.position_bytes(), spec.position_bytes());
  EXPECT_GT(info.position_bytes(), 0);
  EXPECT_EQ(info.max_length(), spec.positions + 1);
}

TEST(Models, AreFoundByNameAndASingleModelWithoutIt) {
  TestServer test;
  ASSERT_TRUE(test.server.models().add(served_bundle(small_image_spec(), 1)).ok());
  ASSERT_TRUE(test.server.models().add(served_bundle(small_symbol_spec(), 1)).ok());
  EXPECT_EQ(test.server.models().add(served_bundle(small_symbol_spec(), 2)).code(),
            Code::kAlreadyExists);
  test.server.ready();
  const auto get = [&](const std::string& name, v1::ModelInfo& info) {
    grpc::ClientContext context;
    v1::GetModelRequest request;
    request.set_name(name);
    return test.models->GetModel(&context, request, &info);
  };
  v1::ModelInfo info;
  ASSERT_TRUE(get("small-symbols", info).ok());
  EXPECT_EQ(info.symbols_size(), 11);
  EXPECT_EQ(get("other", info).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(get("other", info).error_message(),
            "no model 'other'; this server has 'small-image', 'small-symbols'");
  EXPECT_EQ(get("", info).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // Models do not share sessions.
  v1::CreateSessionRequest create;
  create.set_model("small-image");
  create.set_id("s");
  v1::Session session;
  grpc::ClientContext first;
  ASSERT_TRUE(test.sessions->CreateSession(&first, create, &session).ok());
  create.set_model("small-symbols");
  grpc::ClientContext second;
  EXPECT_TRUE(test.sessions->CreateSession(&second, create, &session).ok());
  EXPECT_EQ(session.model(), "small-symbols");
}

}  // namespace
}  // namespace runnel
