// Keys over a real connection: who is served, and with which models and quotas.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/key_file.h"
#include "tests/base/certificates.h"
#include "tests/base/test_files.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kUnauthenticated = grpc::StatusCode::UNAUTHENTICATED;

KeyEntry entry_of(const std::string& name, const std::string& key) {
  KeyEntry entry;
  entry.name = name;
  entry.digest = digest_of_key(key);
  return entry;
}

// A server that requires keys from a file.
class KeysTest : public ::testing::Test {
 protected:
  void serve(const std::vector<KeyEntry>& entries, std::function<void()> on_submit = {}) {
    write(entries);
    ServerOptions options;
    options.host.keys = path_;
    test_ = std::make_unique<TestServer>(served_fake("fake", std::move(on_submit)), options);
  }
  void write(const std::vector<KeyEntry>& entries) {
    const Status status = change_key_file(path_, true, [&](std::vector<KeyEntry>& all) {
      all = entries;
      return Status();
    });
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // A context that sends a key, or none if it is "".
  static std::unique_ptr<grpc::ClientContext> context(const std::string& key) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + kPatience);
    if (!key.empty()) context->AddMetadata("authorization", "Bearer " + key);
    return context;
  }
  grpc::Status create(const std::string& key, const std::string& id) {
    const auto context = this->context(key);
    v1::CreateSessionRequest request;
    request.set_id(id);
    v1::Session session;
    return test_->sessions->CreateSession(context.get(), request, &session);
  }
  std::vector<std::string> list(const std::string& key) {
    const auto context = this->context(key);
    v1::ListSessionsResponse page;
    EXPECT_TRUE(test_->sessions->ListSessions(context.get(), {}, &page).ok());
    std::vector<std::string> ids;
    for (const v1::Session& session : page.sessions()) ids.push_back(session.id());
    return ids;
  }
  // Samples on a session to the end. Returns the status, and the values in `values`.
  grpc::Status generate(const std::string& key, const std::string& session,
                        const std::vector<int32_t>& prompt, std::vector<int32_t>* values = nullptr,
                        const std::string& request_id = "") {
    const auto context = this->context(key);
    v1::GenerateRequest request = generate_request(prompt, 5);
    if (!session.empty()) request.mutable_origin()->set_session(session);
    request.set_request_id(request_id);
    const auto reader = test_->inference->Generate(context.get(), request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      for (const v1::ValueRun& run : response.values().runs()) {
        if (values) values->insert(values->end(), run.values().begin(), run.values().end());
      }
    }
    return reader->Finish();
  }
  grpc::Status score(const std::string& key) {
    const auto context = this->context(key);
    const auto stream = test_->inference->Score(context.get());
    stream->Write(score_request({1, 2, 3}));
    stream->WritesDone();
    v1::ScoreResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path("keys.jsonl");
  std::unique_ptr<TestServer> test_;
};

TEST_F(KeysTest, EveryCallNeedsAKey) {
  serve({entry_of("ada", "one")});
  for (const std::string key : {"", "wrong"}) {
    v1::ModelInfo model;
    v1::ListModelsResponse models;
    v1::Session session;
    v1::ListSessionsResponse page;
    v1::DeleteSessionResponse deleted;
    EXPECT_EQ(generate(key, "", {1}).error_code(), kUnauthenticated);
    EXPECT_EQ(score(key).error_code(), kUnauthenticated);
    EXPECT_EQ(create(key, "a").error_code(), kUnauthenticated);
    EXPECT_EQ(test_->sessions->GetSession(context(key).get(), {}, &session).error_code(),
              kUnauthenticated);
    EXPECT_EQ(test_->sessions->ListSessions(context(key).get(), {}, &page).error_code(),
              kUnauthenticated);
    EXPECT_EQ(test_->sessions->DeleteSession(context(key).get(), {}, &deleted).error_code(),
              kUnauthenticated);
    v1::ForkSessionResponse forked;
    EXPECT_EQ(test_->sessions->ForkSession(context(key).get(), {}, &forked).error_code(),
              kUnauthenticated);
    EXPECT_EQ(test_->sessions->RewindSession(context(key).get(), {}, &session).error_code(),
              kUnauthenticated);
    v1::ListStatesResponse states;
    EXPECT_EQ(test_->sessions->ListStates(context(key).get(), {}, &states).error_code(),
              kUnauthenticated);
    const auto exporting = context(key);
    EXPECT_EQ(test_->sessions->ExportSession(exporting.get(), {})->Finish().error_code(),
              kUnauthenticated);
    const auto importing = context(key);
    EXPECT_EQ(test_->sessions->ImportSession(importing.get(), &session)->Finish().error_code(),
              kUnauthenticated);
    EXPECT_EQ(test_->models->ListModels(context(key).get(), {}, &models).error_code(),
              kUnauthenticated);
    EXPECT_EQ(test_->models->GetModel(context(key).get(), {}, &model).error_code(),
              kUnauthenticated);
  }
  EXPECT_TRUE(generate("one", "", {1}).ok());
  EXPECT_TRUE(score("one").ok());
  EXPECT_THAT(test_->log_text.str(), Not(HasSubstr("wrong"))) << "no key is logged";
}

TEST_F(KeysTest, HealthNeedsNoKey) {
  serve({entry_of("ada", "one")});
  grpc::health::v1::HealthCheckResponse health;
  ASSERT_TRUE(test_->health->Check(context("").get(), {}, &health).ok());
  EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_F(KeysTest, TwoTenantsHaveSessionsOfTheSameName) {
  serve({entry_of("ada", "one"), entry_of("bob", "two")});
  ASSERT_TRUE(create("one", "s").ok());
  EXPECT_EQ(generate("two", "s", {1}).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(create("two", "s").ok());
  ASSERT_TRUE(create("two", "t").ok());
  EXPECT_EQ(list("one"), std::vector<std::string>{"s"});
  EXPECT_EQ(list("two"), (std::vector<std::string>{"s", "t"}));
  std::vector<int32_t> of_ada;
  std::vector<int32_t> of_bob;
  ASSERT_TRUE(generate("one", "s", {1, 2}, &of_ada, "call").ok());
  ASSERT_TRUE(generate("two", "s", {3, 4}, &of_bob, "call").ok()) << "request ids are the owner's";
  EXPECT_EQ(of_ada, FakeModel::expected(fake_spec(), {1, 2}, 1, 0, 5));
  EXPECT_EQ(of_bob, FakeModel::expected(fake_spec(), {3, 4}, 1, 0, 5));
  v1::DeleteSessionRequest request;
  request.set_id("s");
  v1::DeleteSessionResponse deleted;
  ASSERT_TRUE(test_->sessions->DeleteSession(context("two").get(), request, &deleted).ok());
  EXPECT_EQ(list("one"), std::vector<std::string>{"s"});
}

TEST_F(KeysTest, ARotatedKeyKeepsTheSessions) {
  serve({entry_of("ada", "one")});
  ASSERT_TRUE(create("one", "s").ok());
  write({entry_of("ada", "one"), entry_of("ada", "two")});
  test_->server.tend();
  EXPECT_EQ(list("two"), std::vector<std::string>{"s"});
  EXPECT_EQ(list("one"), std::vector<std::string>{"s"}) << "both, for as long as both are there";
  write({entry_of("ada", "two")});
  test_->server.tend();
  EXPECT_EQ(create("one", "t").error_code(), kUnauthenticated);
  EXPECT_TRUE(generate("two", "s", {1}).ok());
}

TEST_F(KeysTest, RemovingAKeyEndsItsCalls) {
  serve({entry_of("ada", "one"), entry_of("bob", "two")});
  const auto start = [&](grpc::ClientContext& context) {
    auto reader = test_->inference->Generate(&context, generate_request({1}, 1 << 20));
    v1::GenerateResponse response;
    EXPECT_TRUE(reader->Read(&response));
    return reader;
  };
  const auto ada = context("one");
  const auto bob = context("two");
  const auto of_ada = start(*ada);
  const auto of_bob = start(*bob);
  write({entry_of("ada", "three"), entry_of("bob", "two")});
  test_->server.tend();
  v1::GenerateResponse response;
  while (of_ada->Read(&response)) {
  }
  const grpc::Status status = of_ada->Finish();
  EXPECT_EQ(status.error_code(), kUnauthenticated);
  EXPECT_EQ(status.error_message(), "the key of this call has been taken away");
  EXPECT_TRUE(of_bob->Read(&response)) << "others go on";
  bob->TryCancel();
  while (of_bob->Read(&response)) {
  }
  EXPECT_EQ(of_bob->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(KeysTest, RemovingARightEndsTheCallsThatNeedIt) {
  KeyEntry ada = entry_of("ada", "one");
  std::atomic<bool> waits{false};
  std::promise<void> changed;
  // The end of a call of this many values that runs while the keys change.
  const auto end_of = [&](const std::vector<KeyEntry>& entries, int64_t values) {
    const auto context = this->context("one");
    const auto reader = test_->inference->Generate(context.get(), generate_request({1}, values));
    v1::GenerateResponse response;
    EXPECT_TRUE(reader->Read(&response));
    write(entries);
    test_->server.tend();
    if (waits) changed.set_value();
    while (reader->Read(&response)) {
    }
    write({ada});
    test_->server.tend();
    return reader->Finish();
  };
  serve({ada}, [&, steps = 0]() mutable {
    if (waits && ++steps == 10) changed.get_future().wait();
  });
  KeyEntry narrowed = ada;
  narrowed.models = std::set<std::string>{"another"};
  const grpc::Status models = end_of({narrowed}, 1 << 20);
  EXPECT_EQ(models.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(models.error_message(), "the key of this call may no longer use model 'fake'");
  const grpc::Status name = end_of({entry_of("bob", "one")}, 1 << 20);
  EXPECT_EQ(name.error_code(), kUnauthenticated);
  EXPECT_EQ(name.error_message(), "the key of this call now belongs to another name");
  narrowed.models->insert("fake");
  EXPECT_TRUE(eventually([&] { return test_->server.active_streams() == 0; }));
  waits = true;
  const grpc::Status kept = end_of({narrowed}, 100);
  EXPECT_TRUE(kept.ok()) << kept.error_message();
}

TEST_F(KeysTest, RemovingAKeyEndsItsScoreCallsWithinAChunk) {
  std::promise<void> begun;
  std::promise<void> done;
  bool first = true;
  serve({entry_of("ada", "one")}, [&] {
    if (!std::exchange(first, false)) return;
    begun.set_value();
    done.get_future().wait();
  });
  const auto ada = context("one");
  const auto stream = test_->inference->Score(ada.get());
  ASSERT_TRUE(stream->Write(score_request({1, 2, 3})));
  begun.get_future().wait();
  write({});
  test_->server.tend();
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), kUnauthenticated) << "while the step still runs";
  EXPECT_EQ(status.error_message(), "the key of this call has been taken away");
  done.set_value();
}

TEST_F(KeysTest, AModelThatAKeyMayNotUseIsNotFound) {
  KeyEntry ada = entry_of("ada", "one");
  ada.models = {"another"};
  serve({ada, entry_of("bob", "two")});
  EXPECT_EQ(generate("one", "", {1}).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::ListModelsResponse models;
  ASSERT_TRUE(test_->models->ListModels(context("one").get(), {}, &models).ok());
  EXPECT_EQ(models.models_size(), 0);
  EXPECT_TRUE(generate("two", "", {1}).ok());
}

TEST_F(KeysTest, AUsedUpQuotaIsNamedWithARetryTime) {
  KeyEntry ada = entry_of("ada", "one");
  ada.calls = 1;
  serve({ada, entry_of("bob", "two")});
  const auto first = context("one");
  const auto running = test_->inference->Generate(first.get(), generate_request({1}, 1 << 20));
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  const auto second = context("one");
  const auto refused = test_->inference->Generate(second.get(), generate_request({1}, 5));
  EXPECT_FALSE(refused->Read(&response));
  const grpc::Status status = refused->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("calls is 1"));
  EXPECT_EQ(trailing_of(*second, "grpc-retry-pushback-ms"), "1000");
  EXPECT_TRUE(generate("two", "", {1}).ok()) << "a quota is of one account";
  first->TryCancel();
  while (running->Read(&response)) {
  }
  EXPECT_EQ(running->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return generate("one", "", {1}).ok(); }));
}

class Reach : public testing::Test {
 protected:
  Reach() {
    const PemPair pair = authority_.issue("server");
    folder_.write("cert.pem", pair.certificate);
    folder_.write("key.pem", pair.key);
    folder_.write("ca.pem", authority_.pem());
    EXPECT_TRUE(change_key_file(keys_, true, [](auto&) { return Status(); }).ok());
  }
  Status start(const std::string& address, const std::string& keys, const TlsFiles& tls,
               bool insecure_public = false) const {
    ServerOptions options;
    options.grpc.address = address;
    options.host.keys = keys;
    options.grpc.tls = tls;
    options.grpc.insecure_public = insecure_public;
    return Server(options, log_).start();
  }

  const TestFolder folder_;
  const TestAuthority authority_{"an authority"};
  const std::string keys_ = folder_.path("keys.jsonl");
  const TlsFiles tls_{folder_.path("cert.pem"), folder_.path("key.pem"), ""};
  const TlsFiles mutual_tls_{tls_.certificate, tls_.key, folder_.path("ca.pem")};
  std::ostringstream log_text_;
  const EventLog log_{"info", false, log_text_};
};

TEST_F(Reach, ListeningToOtherMachinesNeedsKeysOrAFlag) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    for (const TlsFiles& tls : {TlsFiles(), tls_}) {
      const Status open = start(address, "", tls);
      EXPECT_EQ(open.code(), Code::kInvalidArgument);
      EXPECT_THAT(open.message(), HasSubstr("anybody could call"));
      EXPECT_THAT(open.message(), HasSubstr("--keys"));
      EXPECT_THAT(open.message(), HasSubstr("--insecure-public"));
    }
    const Status clear = start(address, keys_, {});
    EXPECT_EQ(clear.code(), Code::kInvalidArgument);
    EXPECT_THAT(clear.message(), HasSubstr("in the clear"));
    EXPECT_THAT(clear.message(), HasSubstr("--tls-cert"));
    EXPECT_THAT(clear.message(), HasSubstr("--insecure-public"));
    EXPECT_TRUE(start(address, "", {}, true).ok());
    EXPECT_TRUE(start(address, keys_, {}, true).ok());
  }
}

TEST_F(Reach, ACredentialOverTlsMayComeFromAnywhere) {
  EXPECT_TRUE(start("0.0.0.0:0", keys_, tls_).ok());
  EXPECT_TRUE(start("0.0.0.0:0", "", mutual_tls_).ok());
}

TEST_F(Reach, ListeningOnlyToThisMachineNeedsNoFlag) {
  for (const std::string& address :
       {std::string("127.0.0.1:0"), std::string("localhost:0"), "unix:" + folder_.path("socket")}) {
    EXPECT_TRUE(start(address, "", {}).ok()) << address;
    EXPECT_TRUE(start(address, keys_, {}).ok()) << address;
  }
}

}  // namespace
}  // namespace runnel
