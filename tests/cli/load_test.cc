#include "cli/load.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/load_figures.h"
#include "bench/load_run.h"
#include "tests/base/test_files.h"
#include "tests/cli/fake_server.h"

namespace runnel {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using json = nlohmann::json;

// Writes Started, then `count` values with one message each.
void write_values(grpc::ServerWriter<v1::GenerateResponse>* writer, int count) {
  v1::GenerateResponse event;
  event.mutable_started()->set_seed(1);
  writer->Write(event);
  for (int i = 0; i < count; ++i) {
    event.Clear();
    v1::ValueRun& run = *event.mutable_values()->add_runs();
    run.set_position(i);
    run.add_values(1);
    if (!writer->Write(event)) return;
  }
}

// The distinct requests. Each call has its own seed, so no two requests are equal.
std::set<std::string> as_bytes(const std::vector<v1::GenerateRequest>& requests) {
  std::set<std::string> bytes;
  for (const v1::GenerateRequest& request : requests) bytes.insert(request.SerializeAsString());
  EXPECT_EQ(bytes.size(), requests.size());
  return bytes;
}

class LoadTest : public testing::Test {
 protected:
  LoadTest() {
    options_.server.address = server_.address();
    options_.rate = 150;
    options_.duration = 1;
    options_.warm_up = 0.1;
    options_.grace = 120;  // after that, a call counts as hung
    options_.prompt = "0-5";
    options_.values = "3-8";
    options_.connections = 2;
    options_.json = true;
  }
  int run() { return run_load(options_, captured_.console()); }
  json figures() {
    EXPECT_EQ(run(), kExitOk) << captured_.err();
    return json::parse(captured_.out());
  }
  json only_run() { return figures()["runs"].at(0); }

  CapturedConsole captured_;
  FakeServer server_{{fake_symbol_model("text")}};
  TestFolder folder_;
  LoadOptions options_;
};

TEST_F(LoadTest, CountsCallsThatCompleteInFull) {
  const json all = figures();
  EXPECT_EQ(all["model"], "text");
  EXPECT_EQ(all["numerics"], "fake-1");
  const json& run = all["runs"].at(0);
  EXPECT_NEAR(run["due"].get<double>(), 150, 60);
  EXPECT_EQ(run["completed"], run["due"]);
  EXPECT_EQ(run["refused"], json::object());
  EXPECT_EQ(run["failed"], json::object());
  EXPECT_EQ(run["unfinished"], 0);
  EXPECT_EQ(run["dropped"], 0);
  EXPECT_EQ(run["good_values"], run["values"]);
  EXPECT_NEAR(run["goodput"].get<double>(), run["values"].get<double>(), 0.2);  // in one second
  EXPECT_EQ(run["first_value_ms"]["count"], run["due"]);
  EXPECT_GT(run["first_value_ms"]["p50"], 0);
  EXPECT_LE(run["first_value_ms"]["p50"], run["first_value_ms"]["p99"]);
  EXPECT_LE(run["first_value_ms"]["p99"], run["first_value_ms"]["max"]);
  EXPECT_LE(run["first_value_ms"]["p50"], run["call_ms"]["p50"].get<double>() * 1.01);
}

TEST_F(LoadTest, TheSameSeedMakesTheSameCalls) {
  only_run();
  const std::set<std::string> first = as_bytes(server_.requests());
  CapturedConsole again;
  ASSERT_EQ(run_load(options_, again.console()), kExitOk);
  std::vector<v1::GenerateRequest> rest = server_.requests();
  rest.erase(rest.begin(), rest.begin() + std::ssize(first));
  EXPECT_GT(first.size(), 50U);
  EXPECT_EQ(as_bytes(rest), first);
}

TEST_F(LoadTest, SendsRequestsThatMatchItsOptions) {
  options_.values_per_message = 7;
  only_run();
  const v1::GenerateRequest request = server_.last_request();
  EXPECT_EQ(request.model(), "text");
  EXPECT_GE(request.values().values_size(), 1) << "this model has no first value of its own";
  EXPECT_LE(request.values().values_size(), 5);
  EXPECT_GE(request.max_values(), 3);
  EXPECT_LE(request.max_values(), 8);
  EXPECT_TRUE(request.sampling().has_seed());
  EXPECT_EQ(request.delivery().max_values(), 7);
}

TEST_F(LoadTest, CountsRefusalsByStatus) {
  server_.generate_instead = [](auto*, auto*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  };
  const json run = only_run();
  EXPECT_EQ(run["refused"]["RESOURCE_EXHAUSTED"]["count"], run["due"]);
  EXPECT_GT(run["refused"]["RESOURCE_EXHAUSTED"]["latency_ms"]["p99"], 0);
  EXPECT_EQ(run["completed"], 0);
  EXPECT_EQ(run["goodput"], 0);
}

TEST_F(LoadTest, CountsCallsThatWaitAndCallsThatAreRefusedAfterWaiting) {
  server_.generate_instead = [](auto*, auto* writer) {
    v1::GenerateResponse event;
    for (int place = 2; place > 0; --place) {
      event.mutable_queued()->set_place(place);
      writer->Write(event);
    }
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full");
  };
  options_.max_queue_time = 0.25;
  const json run = only_run();
  EXPECT_EQ(run["waited"], run["due"]);
  EXPECT_EQ(run["refused"]["RESOURCE_EXHAUSTED"]["count"], run["due"]);
  EXPECT_EQ(server_.last_request().max_queue_time().nanos(), 250'000'000);
}

TEST_F(LoadTest, CountsCallsThatFailAfterTheirFirstValues) {
  server_.generate_instead = [](auto*, auto* writer) {
    write_values(writer, 2);
    return grpc::Status(grpc::StatusCode::ABORTED, "stalled");
  };
  const json run = only_run();
  EXPECT_EQ(run["failed"]["ABORTED"], run["due"]);
  EXPECT_GT(run["values"], 0);
  EXPECT_EQ(run["good_values"], 0);
}

TEST_F(LoadTest, ACallWithTooFewValuesIsNotComplete) {
  server_.generate_instead = [](auto*, auto* writer) {
    write_values(writer, 2);
    return grpc::Status::OK;
  };
  const json run = only_run();
  EXPECT_EQ(run["failed"]["SHORT"], run["due"]);
}

TEST_F(LoadTest, CancelsTheGivenShareOfCalls) {
  options_.values = "40";
  options_.cancel_share = 1;
  options_.rate = 60;
  server_.generate_instead = [](auto* context, auto* writer) {
    write_values(writer, 40);
    // The server notices the cancel even if the values were fast.
    wait_until_cancelled(*context);
    return grpc::Status::OK;
  };
  const json run = only_run();
  EXPECT_GT(run["due"], 10);
  EXPECT_EQ(run["cancelled"], run["due"]);
  EXPECT_EQ(run["completed"], 0);
}

TEST_F(LoadTest, StallsTheGivenShareOfCalls) {
  options_.values = "2";  // the pause falls between these two values
  options_.stall_share = 1;
  options_.stall_time = 0.3;
  options_.rate = 60;
  const json run = only_run();
  EXPECT_GT(run["due"], 10);
  EXPECT_EQ(run["stalled"], run["due"]);
  EXPECT_EQ(run["completed"], run["due"]);
  EXPECT_GE(run["call_ms"]["p50"], 300);
  EXPECT_EQ(run["gap_ms"]["count"], 0) << "its own pause is not the server's";
}

TEST_F(LoadTest, EndsByItselfWhenTheServerDoesNot) {
  server_.generate_instead = [](auto* context, auto*) {
    wait_until_cancelled(*context);
    return grpc::Status::CANCELLED;
  };
  options_.rate = 30;
  options_.grace = 0.3;
  const json run = only_run();
  EXPECT_GT(run["due"], 5);
  EXPECT_EQ(run["unfinished"], run["due"]) << "a call that its deadline ends counts as refused";
}

TEST_F(LoadTest, DropsCallsBeyondItsBoundOfOpenCalls) {
  server_.generate_instead = [](auto* context, auto*) {
    wait_until_cancelled(*context);
    return grpc::Status::CANCELLED;
  };
  options_.most_open = 4;
  options_.warm_up = 0;
  options_.grace = 0.1;
  const json run = only_run();
  EXPECT_EQ(run["unfinished"], 4);
  EXPECT_EQ(run["dropped"].get<int>() + 4, run["due"]);
}

TEST_F(LoadTest, ASweepFindsTheCapacityAndRepeats) {
  options_.rate = 0;
  options_.sweep = {0.05, 0.1};
  options_.concurrency = 3;
  options_.repeat = 2;
  options_.duration = 0.4;
  options_.out = folder_.path("load.json");
  options_.json = false;
  int code = run();
  // A slow machine completes no call in so short a time.
  for (; code == kExitFailed && options_.duration < 60; code = run()) options_.duration *= 2;
  ASSERT_EQ(code, kExitOk) << captured_.err();
  std::ifstream file(options_.out);
  const json all = json::parse(file);
  EXPECT_GT(all["capacity"], 0);
  ASSERT_EQ(all["runs"].size(), 6);
  EXPECT_EQ(all["runs"][0]["concurrency"], 3);
  EXPECT_EQ(all["runs"][2]["multiple"], 0.05);
  EXPECT_EQ(all["runs"][5]["multiple"], 0.1);
  EXPECT_NEAR(all["runs"][3]["rate"].get<double>(), all["capacity"].get<double>() * 0.1, 0.01);
  EXPECT_THAT(captured_.out(), HasSubstr("3 at once"));
  EXPECT_THAT(captured_.out(), HasSubstr("0.10x"));
  EXPECT_THAT(captured_.out(), HasSubstr("capacity: "));
  EXPECT_EQ(std::ranges::count(captured_.out(), '\n'), 6) << "two heads, three loads, capacity";
}

TEST_F(LoadTest, SaysThatThereIsNoCapacity) {
  server_.generate_instead = [](auto*, auto*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no");
  };
  options_.rate = 0;
  options_.find_capacity = true;
  options_.duration = 0.3;
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("no capacity to measure"));
}

TEST_F(LoadTest, AnInterruptEndsIt) {
  options_.duration = 1200;
  // A call may start after the test's last line.
  const auto interrupted = std::make_shared<std::atomic<bool>>(false);
  server_.generate_instead = [interrupted](auto* context, auto*) {
    if (!interrupted->exchange(true)) kill(getpid(), SIGINT);
    wait_until_cancelled(*context);
    return grpc::Status::CANCELLED;
  };
  const Clock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(run(), kExitInterrupted);
  EXPECT_LT(clock.now() - start, std::chrono::seconds(600)) << "calls end with it, open or not";
}

TEST_F(LoadTest, ReportsInvalidFlagsBeforeAnyCall) {
  const auto expect = [&](const LoadOptions& options, const std::string& message) {
    CapturedConsole captured;
    EXPECT_EQ(run_load(options, captured.console()), kExitUsage);
    EXPECT_THAT(captured.err(), StartsWith("runnel: "));
    EXPECT_THAT(captured.err(), HasSubstr(message));
  };
  LoadOptions options = options_;
  options.rate = 0;
  expect(options, "say which load: one of --rate");
  options.rate = 1;
  options.find_capacity = true;
  expect(options, "say which load");
  options = options_;
  options.capacity = 3;
  expect(options, "add --sweep");
  options = options_;
  options.cancel_share = 0.6;
  options.stall_share = 0.6;
  expect(options, "more than 1 together");
  options = options_;
  options.concurrency = 9;
  options.most_open = 8;
  expect(options, "--concurrency 9 is more than --max-open 8 lets be open");
  options = options_;
  options.concurrency = 9;
  expect(options, "--concurrency is for measuring the capacity");
  options = options_;
  options.rate = 0;
  options.find_capacity = true;
  options.stall_share = 0.1;
  expect(options, "--find-capacity is for clients that read");
  options = options_;
  options.prompt = "many";
  expect(options, "--prompt: expected a length");
  options = options_;
  options.values = "9-1";
  expect(options, "--values: expected a length");
  options = options_;
  options.out = folder_.path("no/such/folder.json");
  expect(options, "no/such' to write into");
  options = options_;
  options.model = "other";
  expect(options, "no model 'other'");
}

TEST_F(LoadTest, AMissingServerIsNamed) {
  options_.server.address = "127.0.0.1:1";
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("no server answers at 127.0.0.1:1"));
}

TEST(RunProgress, ExpectsThePresentRateUntilTheEnd) {
  EXPECT_EQ((RunProgress{.seconds = 2, .total_seconds = 8, .values = 30}).expected_values(), 120);
  EXPECT_EQ((RunProgress{.seconds = 9, .total_seconds = 8, .values = 30}).expected_values(), 30);
  EXPECT_EQ((RunProgress{.seconds = 0, .total_seconds = 8, .values = 0}).expected_values(), 0);
  EXPECT_EQ((RunProgress{.seconds = 0, .total_seconds = 8, .values = 1}).expected_values(), 0);
}

TEST(FiguresTable, ShowsTheMedianOfRunsAtOneLoad) {
  std::vector<LoadFigures> runs(4);
  for (int i = 0; i < 3; ++i) {
    runs[i].seconds = 10;
    runs[i].rate = 20;
    runs[i].multiple = 0.5;
    runs[i].good_values = i == 0 ? 3000 : i == 1 ? 90000 : 5000;
  }
  runs[3].seconds = 10;
  runs[3].concurrency = 8;
  runs[3].first_value.add(0.0005);
  const std::string table = figures_table(runs);
  EXPECT_THAT(table, HasSubstr(" 500 "));
  EXPECT_EQ(table.find("9,000"), std::string::npos);
  EXPECT_THAT(table, HasSubstr("8 at once"));
  EXPECT_THAT(table, HasSubstr(" 0.50 "));
  EXPECT_EQ(std::ranges::count(table, '\n'), 4);
}

}  // namespace
}  // namespace runnel
