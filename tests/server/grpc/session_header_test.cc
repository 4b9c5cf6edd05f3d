// Answers about a session name it in their headers, before the first message.

#include "server/calls/session_header.h"

#include <gtest/gtest.h>

#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

// The session that an answer's headers name, or "".
std::string named_in(const grpc::ClientContext& context) {
  const auto& head = context.GetServerInitialMetadata();
  const auto found = head.find(kSessionHeader);
  return found == head.end() ? "" : std::string(found->second.data(), found->second.size());
}

// The session that the headers of this Generate call name before its events are read. `started`
// gets the session of its first event.
std::string generated(TestServer& test, const v1::GenerateRequest& request, std::string* started) {
  grpc::ClientContext context;
  const auto reader = test.inference->Generate(&context, request);
  reader->WaitForInitialMetadata();
  const std::string head = named_in(context);
  for (v1::GenerateResponse response; reader->Read(&response);) {
    if (response.has_started()) *started = response.started().session();
  }
  static_cast<void>(reader->Finish());
  return head;
}

TEST(SessionHeader, AGenerationNamesTheSessionThatItKeepsOrStartsFrom) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  std::string started;
  v1::GenerateRequest request = generate_request({1, 2}, 3);
  EXPECT_EQ(generated(test, request, &started), "");
  request.set_keep(true);
  const std::string made = generated(test, request, &started);
  EXPECT_EQ(made.substr(0, 2), "s-");
  EXPECT_EQ(made, started);
  request.mutable_origin()->set_session(made);
  EXPECT_EQ(generated(test, request, &started), made);
  request.set_keep(false);
  EXPECT_EQ(generated(test, request, &started), made);
  EXPECT_EQ(started, "");
  request.mutable_origin()->set_session("none");
  EXPECT_EQ(generated(test, request, &started), "") << "a proxy must not learn of it here";
}

TEST(SessionHeader, CallsAboutOneSessionNameIt) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  grpc::ClientContext creating;
  v1::Session session;
  ASSERT_TRUE(test.sessions->CreateSession(&creating, {}, &session).ok());
  const std::string id = session.id();
  EXPECT_EQ(named_in(creating), id);
  grpc::ClientContext getting;
  v1::GetSessionRequest get;
  get.set_id(id);
  ASSERT_TRUE(test.sessions->GetSession(&getting, get, &session).ok());
  EXPECT_EQ(named_in(getting), id);
  grpc::ClientContext forking;
  v1::ForkSessionRequest fork;
  fork.set_id(id);
  v1::ForkSessionResponse made;
  ASSERT_TRUE(test.sessions->ForkSession(&forking, fork, &made).ok());
  EXPECT_EQ(named_in(forking), made.sessions(0).id());
  grpc::ClientContext scoring;
  const auto scorer = test.inference->Score(&scoring);
  v1::ScoreRequest score = score_request({1, 2});
  score.mutable_origin()->set_session(id);
  ASSERT_TRUE(scorer->Write(score));
  v1::ScoreResponse scored;
  ASSERT_TRUE(scorer->Read(&scored));
  EXPECT_EQ(named_in(scoring), id);
  scorer->WritesDone();
  while (scorer->Read(&scored)) {
  }
  EXPECT_TRUE(scorer->Finish().ok());
}

TEST(SessionHeader, StatesNameTheirSessions) {
  TestServer test(served_bundle(small_symbol_spec(), 1));
  ASSERT_TRUE(test.create("a").ok());
  grpc::ClientContext exporting;
  v1::ExportSessionRequest request;
  request.set_id("a");
  const auto reader = test.sessions->ExportSession(&exporting, request);
  std::string file;
  for (v1::ExportSessionResponse piece; reader->Read(&piece);) file += piece.data();
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(named_in(exporting), "a");
  grpc::ClientContext importing;
  v1::Session session;
  const auto writer = test.sessions->ImportSession(&importing, &session);
  v1::ImportSessionRequest part;
  part.mutable_target();
  ASSERT_TRUE(writer->Write(part));
  part.set_data(file);
  ASSERT_TRUE(writer->Write(part));
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(named_in(importing), session.id());
}

}  // namespace
}  // namespace runnel
