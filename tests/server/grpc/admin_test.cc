// The right to reload the configuration, and the answers to reloads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/key_file.h"
#include "runnel/v1/admin.grpc.pb.h"
#include "tests/base/test_files.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

KeyEntry entry_of(const std::string& name, const std::string& key) {
  KeyEntry entry;
  entry.name = name;
  entry.digest = digest_of_key(key);
  return entry;
}

ReloadReport some_report() {
  ReloadReport report;
  report.added = {"a", "b"};
  report.replaced = {"c"};
  report.retired = {"d"};
  report.kept = {"e"};
  report.refused = {{"f", "it is broken"}};
  report.needs_restart = {"address"};
  return report;
}

// A server with a key "admin" that may reload, and a key "user" that may not.
class AdminTest : public ::testing::Test {
 protected:
  void serve(AskReload ask) {
    KeyEntry root = entry_of("root", "admin");
    root.admin = true;
    const Status status = change_key_file(path_, true, [&](std::vector<KeyEntry>& all) {
      all = {root, entry_of("ada", "user")};
      return Status();
    });
    ASSERT_TRUE(status.ok()) << status.message();
    ServerOptions options;
    options.host.keys = path_;
    test_ = std::make_unique<TestServer>(std::move(options));
    test_->server.set_reload(std::move(ask));
  }
  grpc::Status reload(const std::string& key, v1::ReloadResponse* report = nullptr) {
    const auto stub = v1::Admin::NewStub(test_->channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    v1::ReloadResponse ignored;
    const grpc::Status status = stub->Reload(&context, {}, report ? report : &ignored);
    pushback_ = trailing_of(context, "grpc-retry-pushback-ms");
    return status;
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path("keys.jsonl");
  std::string pushback_;
  std::unique_ptr<TestServer> test_;
};

TEST_F(AdminTest, OnlyAKeyThatIsMarkedAdminMayReload) {
  int asked = 0;
  serve([&](const ReloadDone& done) {
    ++asked;
    done(some_report());
    return Status();
  });
  test_->server.ready();
  const grpc::Status refused = reload("user");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("runnel key new NAME --admin"));
  EXPECT_EQ(reload("").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(reload("admin").ok());
  EXPECT_EQ(asked, 1);
}

TEST_F(AdminTest, WithoutKeysNobodyMayReload) {
  test_ = std::make_unique<TestServer>(served_fake("fake"));
  const grpc::Status refused = reload("");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("SIGHUP"));
}

TEST_F(AdminTest, TheAnswerReportsTheOutcomeForEveryModel) {
  serve([](const ReloadDone& done) {
    done(some_report());
    return Status();
  });
  test_->server.ready();
  v1::ReloadResponse report;
  ASSERT_TRUE(reload("admin", &report).ok());
  EXPECT_THAT(report.added(), ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(report.replaced(), ::testing::ElementsAre("c"));
  EXPECT_THAT(report.retired(), ::testing::ElementsAre("d"));
  EXPECT_THAT(report.kept(), ::testing::ElementsAre("e"));
  EXPECT_THAT(report.needs_restart(), ::testing::ElementsAre("address"));
  ASSERT_EQ(report.refused_size(), 1);
  EXPECT_EQ(report.refused(0).model(), "f");
  EXPECT_EQ(report.refused(0).reason(), "it is broken");
}

TEST_F(AdminTest, AnImpossibleReloadSaysWhy) {
  bool busy = true;
  serve([&](const ReloadDone& done) {
    if (busy) return Status(Code::kAborted, "busy").with_retry_after(std::chrono::seconds(1));
    done(Status(Code::kFailedPrecondition, "the file is wrong"));
    return Status();
  });
  EXPECT_EQ(reload("admin").error_code(), grpc::StatusCode::UNAVAILABLE) << "models still load";
  test_->server.ready();
  EXPECT_EQ(reload("admin").error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(pushback_, "1000");
  busy = false;
  const grpc::Status failed = reload("admin");
  EXPECT_EQ(failed.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(failed.error_message(), "the file is wrong");
}

}  // namespace
}  // namespace runnel
