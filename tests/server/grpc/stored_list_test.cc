// Lists of sessions in a store: every server lists all of them, loaded or not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/host/kept_sessions.h"
#include "storage/memory_store.h"
#include "tests/base/eventually.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"
#include "tests/storage/faulty_store.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoredLists : public ::testing::Test {
 protected:
  StoredLists() {
    options_.host.storage.settings.url = "dir:" + folder_.path() + "/store";
    options_.host.storage.settings.sync = "none";
    options_.host.storage.settings.times.timeout_ms = 60000;
  }

  std::unique_ptr<TestServer> server() const {
    return std::make_unique<TestServer>(served_bundle(small_symbol_spec(), 1), options_);
  }

  static v1::GenerateRequest in_session(const std::string& session, int64_t values) {
    v1::GenerateRequest request = generate_request({1, 2}, values, 7);
    request.mutable_origin()->set_session(session);
    return request;
  }

  static grpc::Status list(TestServer& test, const v1::ListSessionsRequest& request,
                           v1::ListSessionsResponse& page) {
    grpc::ClientContext context;
    return test.sessions->ListSessions(&context, request, &page);
  }

  // Reads all sessions in pages of two. Returns the id and position of each.
  static std::vector<std::string> listed(TestServer& test) {
    std::vector<std::string> found;
    v1::ListSessionsRequest request;
    request.set_page_size(2);
    do {
      v1::ListSessionsResponse page;
      const grpc::Status status = list(test, request, page);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_LE(page.sessions_size(), 2);
      for (const v1::Session& session : page.sessions()) {
        found.push_back(session.id() + " " + std::to_string(session.position()));
      }
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return found;
  }

  const TempDir folder_;
  ServerOptions options_;
};

TEST_F(StoredLists, HaveSessionsThatTheServerHasNotLoaded) {
  auto one = server();
  const auto two = server();
  for (const char* const id : {"d", "b", "a", "c"}) ASSERT_TRUE(one->create(id).ok());
  ASSERT_TRUE(two->create("e").ok());
  ASSERT_TRUE(one->generate(in_session("b", 5)).status.ok());
  EXPECT_THAT(listed(*two), ElementsAre("a 0", "b 7", "c 0", "d 0", "e 0"));
  ASSERT_TRUE(two->generate(in_session("b", 3)).status.ok());
  EXPECT_THAT(listed(*one), ElementsAre("a 0", "b 12", "c 0", "d 0", "e 0"));
  ASSERT_TRUE(two->remove("c").ok());
  EXPECT_THAT(listed(*one), ElementsAre("a 0", "b 12", "d 0", "e 0")) << "though it has a copy";
  one = nullptr;
  const auto three = server();
  EXPECT_THAT(listed(*three), ElementsAre("a 0", "b 12", "d 0", "e 0"));
  ASSERT_TRUE(three->remove("b").ok());
  EXPECT_THAT(listed(*two), ElementsAre("a 0", "d 0", "e 0"));
}

TEST_F(StoredLists, HaveChildrenAndSequencesThatWereKept) {
  const auto one = server();
  ASSERT_TRUE(one->create("a").ok());
  v1::ForkSessionRequest fork;
  fork.set_id("a");
  fork.add_children("b");
  grpc::ClientContext context;
  v1::ForkSessionResponse forked;
  ASSERT_TRUE(one->sessions->ForkSession(&context, fork, &forked).ok());
  v1::GenerateRequest keep = generate_request({1}, 3);
  keep.set_keep(true);
  const Generated kept = one->generate(keep);
  ASSERT_TRUE(kept.status.ok()) << kept.status.error_message();
  const auto two = server();
  EXPECT_THAT(listed(*two), ElementsAre("a 0", "b 0", kept.started.session() + " 4"));
}

TEST_F(StoredLists, HaveSessionsWithACallAndSessionsWhoseRecordsAreDamaged) {
  const auto one = server();
  const auto two = server();
  ASSERT_TRUE(one->create("a").ok());
  {
    grpc::ClientContext context;
    const auto reader = one->inference->Generate(&context, in_session("a", 1 << 20));
    v1::GenerateResponse response;
    EXPECT_TRUE(reader->Read(&response));
    EXPECT_THAT(listed(*two), ElementsAre("a 0")) << "where the store has it";
    context.TryCancel();
    static_cast<void>(reader->Finish());
  }
  ASSERT_TRUE(eventually([&] {
    return one->server.active_streams() == 0 &&
           one->server.context().kept->wait_until_saved(Duration(0));
  }));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/store")) {
    if (entry.path().extension() == ".record") std::filesystem::resize_file(entry.path(), 20);
  }
  EXPECT_THAT(listed(*two), ElementsAre("a 0"));
  v1::ListSessionsResponse page;
  EXPECT_TRUE(list(*two, {}, page).ok());
  EXPECT_EQ(page.sessions(0).idle().seconds(), 0) << "nobody knows when it was used";
  EXPECT_EQ(two->get("a").error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_TRUE(two->remove("a").ok());
  EXPECT_EQ(two->get("a").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StoredLists, HaveAtMostAHundredSessionsOnAPage) {
  const auto one = server();
  for (int i = 0; i < 103; ++i) ASSERT_TRUE(one->create("s" + std::to_string(1000 + i)).ok());
  const auto two = server();
  for (TestServer* const test : {one.get(), two.get()}) {
    v1::ListSessionsRequest request;
    request.set_page_size(1000);
    v1::ListSessionsResponse first;
    ASSERT_TRUE(list(*test, request, first).ok());
    EXPECT_EQ(first.sessions_size(), 100);
    request.set_page_token(first.next_page_token());
    v1::ListSessionsResponse last;
    ASSERT_TRUE(list(*test, request, last).ok());
    ASSERT_EQ(last.sessions_size(), 3);
    EXPECT_EQ(last.sessions(0).id(), "s1100");
    EXPECT_TRUE(last.next_page_token().empty());
  }
}

TEST(StoredList, FailsIfTheStoreFails) {
  std::atomic<bool> fails{false};
  const auto memory = std::make_shared<MemoryStore>(std::make_shared<MemoryShelf>(),
                                                    StoreSettings().times, real_clock());
  ServerOptions options;
  options.host.storage.store =
      std::make_shared<FaultyStore>(memory, [&](const std::string& operation) {
        if (!fails || operation != "list") return Status();
        return Status(Code::kUnavailable, "the disk is gone");
      });
  TestServer test(served_bundle(small_symbol_spec(), 1), options);
  ASSERT_TRUE(test.create("a").ok());
  for (const bool is_broken : {false, true}) {
    fails = is_broken;
    grpc::ClientContext context;
    v1::ListSessionsResponse page;
    const grpc::Status status = test.sessions->ListSessions(&context, {}, &page);
    EXPECT_EQ(page.sessions_size(), is_broken ? 0 : 1);
    EXPECT_EQ(status.error_code(),
              is_broken ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::OK);
    EXPECT_THAT(status.error_message(), HasSubstr(is_broken ? "the disk is gone" : ""));
  }
}

}  // namespace
}  // namespace runnel
