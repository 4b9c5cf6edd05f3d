#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/fields.h"
#include "cli/commands.h"
#include "client/client.h"
#include "server/grpc/wire.h"
#include "tests/base/test_files.h"
#include "tests/cli/fake_server.h"

namespace runnel {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

class ScoreTest : public testing::Test {
 protected:
  ScoreTest() {
    options_.server.address = server_.address();
    options_.model = "small";
    std::vector<uint8_t> content(40 * 12, 1);
    for (int i = 0; i < 40; ++i) {
      // Item i has i % 12 values that cost two bits. The first value is not scored.
      std::fill_n(content.begin() + i * 12 + 1, i % 12, 7);
    }
    options_.file = folder_.write("forty.idx", idx_bytes({40, 4, 3}, content));
  }
  static double expected(int item) { return (11.0 + item % 12) / 11; }
  int run() { return run_score(options_, captured_.console()); }

  CapturedConsole captured_;
  FakeServer server_{
      {fake_image_model("small"), fake_symbol_model("text"), fake_text_model("prose")}};
  TestFolder folder_;
  ScoreOptions options_;
};

TEST_F(ScoreTest, ParallelCallsKeepTheOrderOfItems) {
  options_.json = true;
  options_.jobs = 7;
  options_.timeout = 120;
  // The first call waits until another one runs at the same time.
  server_.score_instead = [&](grpc::ServerContext* context) {
    while (server_.most_scores_at_once() < 2 && !context->IsCancelled()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return grpc::Status::OK;
  };
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  const auto json = nlohmann::json::parse(captured_.out());
  ASSERT_EQ(json["items"].size(), 40);
  double sum = 0;
  for (int i = 0; i < 40; ++i) {
    EXPECT_NEAR(json["items"][i]["bits_per_dim"].get<double>(), expected(i), 1e-6) << i;
    EXPECT_EQ(json["items"][i]["values"], 11);
    sum += expected(i);
  }
  EXPECT_NEAR(json["mean_bits_per_dim"].get<double>(), sum / 40, 1e-6);
  EXPECT_EQ(json["model"], "small");
  EXPECT_EQ(json["numerics"], "fake-1");
  double squares = 0;
  for (int i = 0; i < 40; ++i) squares += std::pow(expected(i) - sum / 40, 2);
  EXPECT_NEAR(json["standard_error"].get<double>(), std::sqrt(squares / 39 / 40), 1e-6);
  EXPECT_GT(server_.most_scores_at_once(), 1);
  EXPECT_LE(server_.most_scores_at_once(), 7);
}

TEST_F(ScoreTest, PrintsItemsAndMean) {
  options_.first = 3;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(),
              AllOf(testing::StartsWith("0  1.0000\n1  1.0909\n2  1.1818\nmean  1.0909 +- 0.0525 "),
                    HasSubstr("bits per dimension, 3 items in"), HasSubstr("(fake-1)")));
  options_.first = 1;
  ASSERT_EQ(run(), kExitOk);
  EXPECT_THAT(captured_.out(), HasSubstr("mean  1.0000 bits per dimension, 1 item in"));
}

TEST_F(ScoreTest, ScoresLongSequencesInChunks) {
  options_.model = "text";
  options_.json = true;
  std::string line;
  for (int i = 0; i < 300'000; ++i) line += i % 2 == 0 ? "7 " : "1 ";
  options_.file = folder_.write("long.txt", line + "\n1 7\n");
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  const auto json = nlohmann::json::parse(captured_.out());
  EXPECT_EQ(json["items"][0]["values"], 299'999);
  EXPECT_NEAR(json["items"][0]["bits_per_dim"].get<double>(), 1.5, 1e-4);
  EXPECT_NEAR(json["items"][1]["bits_per_dim"].get<double>(), 2, 1e-6);
}

TEST_F(ScoreTest, WaitsWhileTheServerIsFullAndSaysWhenToComeBack) {
  std::atomic<int> calls = 0;
  server_.score_instead = [&](grpc::ServerContext* context) {
    if (calls++ >= 2) return grpc::Status::OK;
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "20");
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "all sessions are taken");
  };
  options_.first = 1;
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_EQ(calls, 3);
}

TEST_F(ScoreTest, TheFirstFailureEndsAllAndIsNamed) {
  server_.score_instead = [](auto*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "all sessions are taken");
  };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(
      captured_.err(),
      testing::MatchesRegex("runnel: item [0-9]+: RESOURCE_EXHAUSTED: all sessions are taken\n"));
}

TEST_F(ScoreTest, ErrorsNameTheFlagsInsteadOfTheFieldsOfTheServer) {
  const Status refused =
      invalid_argument(place_of(fields::kText) + " is set, but model 'm' has no tokenizer" +
                       hint(": send numbers in " + place_of(fields::kValues)));
  server_.score_instead = [&](auto*) { return to_grpc(refused); };
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(),
              HasSubstr("INVALID_ARGUMENT: --text is set, but model 'm' has no tokenizer\n"));
}

TEST_F(ScoreTest, FilesThatCannotBeUsedEndWith2) {
  options_.file = folder_.path("none");
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("cannot be opened"));
}

TEST_F(ScoreTest, ScoresTextAsItIs) {
  options_.model = "prose";
  options_.text = true;
  options_.file = folder_.write("prose.txt", "Gr\u00fc\u00dfe");
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_EQ(server_.last_scored_text(), "Gr\u00fc\u00dfe");
  EXPECT_THAT(captured_.out(), HasSubstr("mean  1.0000 bits per value, 1 item"));
}

TEST_F(ScoreTest, ALongTextIsSentInPieces) {
  options_.model = "prose";
  options_.text = true;
  std::string text;
  while (text.size() < 300'000) text += "Gr\u00fc\u00dfe, line after line\n";
  options_.file = folder_.write("book.txt", text);
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_EQ(server_.last_scored_text(), text);
  EXPECT_LE(server_.longest_text(), 64 << 10);
}

TEST_F(ScoreTest, ReportsTheProgressOfALongText) {
  Client client(options_.server, Seconds(60));
  ASSERT_TRUE(client.connect(Seconds(60)).ok());
  Sequence sequence;
  while (sequence.text.size() < 300'000) sequence.text += "line after line\n";
  std::vector<int64_t> done;
  Scored scored;
  const auto note = [&done](int64_t bytes) { done.push_back(bytes); };
  ASSERT_TRUE(client.score("prose", sequence, scored, note).ok());
  ASSERT_GE(done.size(), 5U);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_LT(done.front(), 100'000);
  EXPECT_EQ(done.back(), std::ssize(sequence.text));
}

TEST_F(ScoreTest, TextThatCannotBeScoredEndsWith2) {
  options_.text = true;
  options_.file = folder_.write("prose.txt", "abc");
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("--text is for models of text"));
  options_.model = "prose";
  options_.file = folder_.write("latin1.txt", "Gr\xfc");
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("latin1.txt' is not valid UTF-8 at byte 2"));
  options_.file = folder_.write("empty.txt", "");
  EXPECT_EQ(run(), kExitUsage);
  options_.text = false;
  options_.file = folder_.write("words.txt", "some words");
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("for text add --text"));
}

TEST_F(ScoreTest, ReadsStandardInput) {
  options_.model = "text";
  options_.file = "-";
  std::istringstream input("1 7 7\n");
  std::streambuf* before = std::cin.rdbuf(input.rdbuf());
  const int code = run();
  std::cin.rdbuf(before);
  ASSERT_EQ(code, kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(), HasSubstr("mean  2.0000"));
}

TEST_F(ScoreTest, ErrorsNameStandardInput) {
  options_.model = "text";
  options_.file = "-";
  std::istringstream input("1\n");
  std::streambuf* before = std::cin.rdbuf(input.rdbuf());
  const int code = run();
  std::cin.rdbuf(before);
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("standard input, sequence 0 has one value"));
}

TEST_F(ScoreTest, AnInterruptEndsEveryCall) {
  std::atomic<int> calls = 0;
  server_.score_instead = [&](grpc::ServerContext* context) {
    if (++calls == 3) kill(getpid(), SIGINT);
    wait_until_cancelled(*context);
    return grpc::Status::CANCELLED;
  };
  options_.jobs = 3;
  EXPECT_EQ(run(), kExitInterrupted);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace runnel
