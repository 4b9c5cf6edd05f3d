// docs/api.md is complete: every RPC, message and field of the wire contract, and every status.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/status.h"
#include "runnel/v1/admin.pb.h"
#include "runnel/v1/inference.pb.h"
#include "runnel/v1/models.pb.h"
#include "runnel/v1/sessions.pb.h"

namespace runnel {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string api_docs() {
  std::ifstream in("docs/api.md");
  EXPECT_TRUE(in);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::vector<const google::protobuf::FileDescriptor*>& files() {
  static const std::vector<const google::protobuf::FileDescriptor*> kFiles = {
      v1::GenerateRequest::descriptor()->file(), v1::Session::descriptor()->file(),
      v1::ModelInfo::descriptor()->file(), v1::ReloadRequest::descriptor()->file()};
  return kFiles;
}

TEST(ApiDocs, HaveEveryRpc) {
  const std::string docs = api_docs();
  for (const auto* file : files()) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      EXPECT_THAT(docs, HasSubstr(service->full_name()));
      for (int j = 0; j < service->method_count(); ++j) {
        EXPECT_THAT(docs, HasSubstr("### " + service->method(j)->name() + "\n"));
        EXPECT_THAT(docs, HasSubstr(service->full_name() + "/" + service->method(j)->name()));
      }
    }
  }
  EXPECT_THAT(docs, HasSubstr("grpc.health.v1.Health"));
  EXPECT_THAT(docs, HasSubstr("reflection"));
}

TEST(ApiDocs, HaveEveryFieldOfEveryMessage) {
  const std::string docs = api_docs();
  for (const auto* file : files()) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      const auto* message = file->message_type(i);
      for (int j = 0; j < message->field_count(); ++j) {
        // As a whole word: `top_k` is not there for "top".
        EXPECT_THAT(docs, ContainsRegex("[`.\"]" + message->field(j)->name() + "[^a-z0-9_]"))
            << message->full_name();
      }
    }
  }
}

TEST(ApiDocs, HaveEveryStatus) {
  const std::string docs = api_docs();
  for (const Code code :
       {Code::kCancelled, Code::kInvalidArgument, Code::kDeadlineExceeded, Code::kNotFound,
        Code::kAlreadyExists, Code::kPermissionDenied, Code::kFailedPrecondition,
        Code::kResourceExhausted, Code::kAborted, Code::kOutOfRange, Code::kUnavailable,
        Code::kUnauthenticated, Code::kDataLoss}) {
    EXPECT_THAT(docs, HasSubstr(std::string("| ") + code_name(code) + " |"));
  }
  EXPECT_THAT(docs, HasSubstr("grpc-retry-pushback-ms"));
}

}  // namespace
}  // namespace runnel
