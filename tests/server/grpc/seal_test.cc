// Seals of state files: changing keys, owners, and files that expire.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>

#include "config/key_file.h"
#include "storage/memory_store.h"
#include "tests/base/test_files.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

class SealTest : public ::testing::Test {
 protected:
  // Writes a key file of 32 equal bytes. Returns its path.
  std::string seal_key(char byte) const {
    const std::string path = folder_.path() + "/seal-" + byte;
    write_file(path, std::string(32, byte));
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }

  ServerOptions options(const std::string& seal_keys) const {
    ServerOptions options;
    options.host.seal_keys = seal_keys;
    return options;
  }

  // Options with callers "alice" and "bob", whose keys equal their names.
  ServerOptions options_with_callers() const {
    ServerOptions all = options(seal_key('a'));
    all.host.keys = folder_.path() + "/keys";
    const Status status = change_key_file(all.host.keys, true, [](std::vector<KeyEntry>& entries) {
      for (const char* const name : {"alice", "bob"}) {
        entries.emplace_back();
        entries.back().name = name;
        entries.back().digest = digest_of_key(name);
      }
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return all;
  }

  static void show(grpc::ClientContext& context, const std::string& caller) {
    if (!caller.empty()) context.AddMetadata("authorization", "Bearer " + caller);
  }

  static void create(TestServer& test, const std::string& caller) {
    grpc::ClientContext context;
    show(context, caller);
    v1::CreateSessionRequest request;
    request.set_id("a");
    v1::Session session;
    ASSERT_TRUE(test.sessions->CreateSession(&context, request, &session).ok());
  }

  // Exports session "a". `with` may change the request.
  static grpc::Status save(TestServer& test, const std::string& caller, std::string& file,
                           const std::function<void(v1::ExportSessionRequest&)>& with = {}) {
    grpc::ClientContext context;
    show(context, caller);
    v1::ExportSessionRequest request;
    request.set_id("a");
    if (with) with(request);
    const auto reader = test.sessions->ExportSession(&context, request);
    file.clear();
    for (v1::ExportSessionResponse piece; reader->Read(&piece);) file += piece.data();
    return reader->Finish();
  }

  static grpc::Status load(TestServer& test, const std::string& caller, const std::string& file) {
    grpc::ClientContext context;
    show(context, caller);
    v1::Session session;
    const auto writer = test.sessions->ImportSession(&context, &session);
    v1::ImportSessionRequest part;
    part.mutable_target();
    if (writer->Write(part)) {
      part.set_data(file);
      writer->Write(part);
    }
    writer->WritesDone();
    return writer->Finish();
  }

  const TempDir folder_;
};

TEST_F(SealTest, AKeyIsReplacedInThreeSteps) {
  const std::string a = seal_key('a');
  const std::string b = seal_key('b');
  TestServer before(served_bundle(small_symbol_spec(), 1), options(a));
  TestServer added(served_bundle(small_symbol_spec(), 1), options(a + "," + b));
  TestServer first(served_bundle(small_symbol_spec(), 1), options(b + "," + a));
  TestServer after(served_bundle(small_symbol_spec(), 1), options(b));
  std::string old_file;
  std::string new_file;
  create(added, "");
  ASSERT_TRUE(save(added, "", old_file).ok());
  create(first, "");
  ASSERT_TRUE(save(first, "", new_file).ok());
  for (TestServer* const server : {&before, &added, &first}) {
    EXPECT_TRUE(load(*server, "", old_file).ok());
  }
  for (TestServer* const server : {&added, &first, &after}) {
    EXPECT_TRUE(load(*server, "", new_file).ok());
  }
  EXPECT_EQ(load(before, "", new_file).error_code(), kPrecondition);
  EXPECT_EQ(load(after, "", old_file).error_code(), kPrecondition);
}

TEST_F(SealTest, OnlyTheOwnerMayLoadAFileUnlessItIsSharedWithAll) {
  TestServer test(served_bundle(small_symbol_spec(), 1), options_with_callers());
  create(test, "alice");
  std::string file;
  ASSERT_TRUE(save(test, "alice", file).ok());
  EXPECT_TRUE(load(test, "alice", file).ok());
  const grpc::Status refused = load(test, "bob", file);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("belongs to another caller"));
  ASSERT_TRUE(save(test, "alice", file, [](auto& request) { request.set_any_owner(true); }).ok());
  EXPECT_TRUE(load(test, "bob", file).ok());
  EXPECT_TRUE(load(test, "alice", file).ok());
}

TEST_F(SealTest, AFileExpires) {
  Clock clock{TimePoint(std::chrono::hours(1))};
  TestServer test(served_bundle(small_symbol_spec(), 1), options(seal_key('a')), clock);
  create(test, "");
  std::string file;
  const auto for_a_minute = [](auto& request) { request.mutable_expires_in()->set_seconds(60); };
  ASSERT_TRUE(save(test, "", file, for_a_minute).ok());
  clock.advance(std::chrono::seconds(59));
  EXPECT_TRUE(load(test, "", file).ok());
  clock.advance(std::chrono::seconds(1));
  const grpc::Status refused = load(test, "", file);
  EXPECT_EQ(refused.error_code(), kPrecondition);
  EXPECT_THAT(refused.error_message(), HasSubstr("expired 0 seconds ago"));

  const auto at_once = [](auto& request) { request.mutable_expires_in()->set_nanos(1); };
  EXPECT_EQ(save(test, "", file, at_once).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  TestServer unsealed(served_bundle(small_symbol_spec(), 1));
  create(unsealed, "");
  EXPECT_EQ(save(unsealed, "", file, for_a_minute).error_code(), kPrecondition);
  EXPECT_TRUE(save(unsealed, "", file, [](auto& request) { request.set_any_owner(true); }).ok());
}

// Anybody who can write to the store can replace a state together with its checksum. Only a seal
// shows that a server wrote the state. So a server refuses states without a seal from such a store.
TEST_F(SealTest, AStoreWhereOthersMayWriteNeedsSeals) {
  const auto shelf = std::make_shared<MemoryShelf>();
  const auto generate = [&](const std::string& seal_keys, bool needs_seals) {
    shelf->needs_seals = needs_seals;
    ServerOptions all = options(seal_keys);
    all.host.storage.log_bytes = 0;  // each call writes a state
    all.host.storage.store =
        std::make_shared<MemoryStore>(shelf, StoreSettings().times, real_clock());
    TestServer test(served_bundle(small_symbol_spec(), 1), all);
    if (shelf->entries.empty()) create(test, "");
    v1::GenerateRequest request = generate_request({1, 2}, 3);
    request.mutable_origin()->set_session("a");
    return test.generate(request).status;
  };
  ASSERT_TRUE(generate("", false).ok());  // the state has no seal
  const grpc::Status refused = generate(seal_key('a'), true);
  EXPECT_EQ(refused.error_code(), kPrecondition);
  EXPECT_THAT(refused.error_message(), HasSubstr("is not sealed"));
  EXPECT_TRUE(generate(seal_key('a'), false).ok()) << "the call was refused, and changed nothing";
  EXPECT_TRUE(generate(seal_key('a'), true).ok()) << "this state has a seal";
}

}  // namespace
}  // namespace runnel
