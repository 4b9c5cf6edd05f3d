#include "cli/bench.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/measure.h"
#include "bench/server_calls.h"
#include "client/stubs.h"
#include "kernels/cpu/choose_isa.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"
#include "tests/cli/fake_server.h"
#include "tests/kernels/host_backend.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<LoadedModel> make_model(const Bundle& bundle, const ServerConfig& config,
                               const ModelLimits& limits) {
  CpuOptions options;
  options.threads = static_cast<int>(config.threads);
  Result<std::unique_ptr<Backend>> backend = make_cpu_backend(options);
  if (!backend.ok()) return backend.status();
  const Precision precision = config.precision == "bf16"   ? Precision::kBf16
                              : config.precision == "int8" ? Precision::kInt8
                                                           : Precision::kFp32;
  Result<std::unique_ptr<Model>> model = make_model(bundle, **backend, limits, precision);
  if (!model.ok()) return model.status();
  return LoadedModel{std::move(*backend), std::move(*model), precision};
}

class BenchTest : public testing::Test {
 protected:
  BenchTest() {
    options_.batches = {1, 3};
    options_.seconds = 0;
    options_.json = true;
  }
  void use_bundle(const Spec& spec) {
    options_.bundle = directory_.path() + "/bundle";
    write_bundle(options_.bundle, spec, random_tensors(spec, 5));
  }
  int run() { return run_bench(options_, make_model, captured_.console()); }
  OrderedJson figures() {
    EXPECT_EQ(run(), kExitOk) << captured_.err();
    return OrderedJson::parse(captured_.out());
  }

  CapturedConsole captured_;
  TempDir directory_;
  BenchOptions options_;
};

void expect_throughput(const OrderedJson& one, const std::string& what, int batch, int64_t values) {
  EXPECT_EQ(one["what"], what);
  EXPECT_EQ(one["batch"], batch);
  EXPECT_EQ(one["values"], values);
  EXPECT_EQ(one["runs"].size(), 1);
  EXPECT_EQ(one["values_per_s"], one["runs"][0]);
  EXPECT_GT(one["values_per_s"], 0);
}

TEST_F(BenchTest, MeasuresAnEngineInThisProcess) {
  use_bundle(small_image_spec());
  const OrderedJson all = figures();
  EXPECT_EQ(all["model"], small_image_spec().name);
  EXPECT_THAT(all["numerics"].get<std::string>(), HasSubstr("cpu/"));
  EXPECT_GE(all["machine"]["cores"], 1);
  ASSERT_EQ(all["throughput"].size(), 2);
  expect_throughput(all["throughput"][0], "engine", 1, 19);  // 20 bytes, the first is given
  expect_throughput(all["throughput"][1], "engine", 3, 19);
  EXPECT_EQ(all["memory"]["state_bytes"], small_image_spec().state_bytes());
  EXPECT_NEAR(all["memory"]["resident_bytes_per_session"].get<double>(),
              static_cast<double>(small_image_spec().state_bytes()), 4096);
  EXPECT_FALSE(all.contains("positions"));
  EXPECT_FALSE(all.contains("limits"));
}

TEST_F(BenchTest, LeavesOutFiguresOfTheCpuOnAGpu) {
  use_bundle(small_image_spec());
  const ModelFactory on_gpu = [](const Bundle& bundle, const ServerConfig&,
                                 const ModelLimits& limits) -> Result<LoadedModel> {
    auto backend = cuda::make_host_backend();
    auto model = make_model(bundle, *backend, limits);
    return LoadedModel{std::move(backend), std::move(*model)};
  };
  EXPECT_EQ(run_bench(options_, on_gpu, captured_.console()), kExitOk) << captured_.err();
  const OrderedJson all = OrderedJson::parse(captured_.out());
  EXPECT_EQ(all["throughput"].size(), 2);
  EXPECT_FALSE(all.contains("memory"));
  EXPECT_FALSE(all.contains("operations"));
  for (const std::string what : {"memory", "operations"}) {
    options_.what = {what};
    EXPECT_EQ(run_bench(options_, on_gpu, captured_.console()), kExitFailed);
    EXPECT_THAT(captured_.err(), HasSubstr("--what " + what +
                                           " measures the CPU alone, and the "
                                           "model runs as cuda/host/fp32/step"));
  }
}

TEST_F(BenchTest, SaysWhereTheTimeOfAStepGoes) {
  use_bundle(small_image_spec());
  options_.what = {"operations"};
  options_.batches = {2};
  options_.seconds = 0.05;
  const OrderedJson operations = figures()["operations"];
  ASSERT_EQ(operations.size(), 1);
  EXPECT_EQ(operations[0]["batch"], 2);
  std::vector<std::string> names;
  double sum = 0;
  for (const OrderedJson& one : operations[0]["operations"]) {
    names.push_back(one["name"]);
    sum += one["us"].get<double>();
  }
  EXPECT_THAT(
      names, ElementsAre("embed", "qkv", "recur", "out", "norm", "ffn1", "ffn2", "head", "sample"));
  EXPECT_LT(sum, operations[0]["step_us"].get<double>() * 1.01);
}

TEST_F(BenchTest, TimesTheOperationsOfThePrecisionAskedFor) {
  use_bundle(small_image_spec());
  options_.what = {"engine", "operations"};
  options_.batches = {1};
  for (const std::string precision : {"bf16", "int8"}) {
    options_.words = {{"--precision", precision}, {"--threads", "1"}};
    CapturedConsole captured;
    ASSERT_EQ(run_bench(options_, make_model, captured.console()), kExitOk) << captured.err();
    const OrderedJson all = OrderedJson::parse(captured.out());
    EXPECT_THAT(all["numerics"].get<std::string>(), HasSubstr("/" + precision + "/"));
    EXPECT_EQ(all["operations"][0]["threads"], 1.0);
  }
}

TEST_F(BenchTest, MeasuresEveryInstructionSet) {
  use_bundle(small_image_spec());
  options_.what = {"engine"};
  options_.batches = {1};
  options_.words = {{"--isa", "all"}, {"--threads", "1"}};
  const OrderedJson all = figures();
  EXPECT_THAT(all["auto"].get<std::string>(), HasSubstr(isa_name(cpu::best_isa().isa)));
  std::set<std::string> found;
  for (const OrderedJson& one : all["isas"]) {
    found.insert(one["isa"]);
    EXPECT_GT(one["throughput"][0]["values_per_s"], 0);
  }
  std::set<std::string> expected;
  for (const Isa isa : kIsas) {
    if (isa_available(isa)) expected.insert(isa_name(isa));
  }
  EXPECT_EQ(found, expected);
}

TEST_F(BenchTest, EveryInstructionSetNeedsABundle) {
  options_.what = {"limits"};
  options_.words = {{"--isa", "all"}};
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("--isa all needs a bundle's directory"));
}

TEST_F(BenchTest, MeasuresTheCostOfPositions) {
  use_bundle(small_symbol_spec());
  options_.what = {"positions"};
  options_.positions = {300, 20};
  const OrderedJson positions = figures()["positions"];
  ASSERT_EQ(positions["points"].size(), 2);
  EXPECT_EQ(positions["points"][0]["position"], 20);
  EXPECT_EQ(positions["points"][1]["position"], 300);
  for (const OrderedJson& point : positions["points"]) {
    EXPECT_GT(point["us_per_value"], 0);
    EXPECT_GT(point["ratio"], 0);
  }
  EXPECT_GT(positions["prompt_values_per_s"], 0);
}

TEST_F(BenchTest, MeasuresHowFastAPromptIsRead) {
  use_bundle(small_symbol_spec());
  options_.what = {"prompts"};
  options_.batches = {1 << 20};  // for other measurements; a prompt needs one session
  options_.prompt = 40;
  const OrderedJson all = figures();
  EXPECT_FALSE(all.contains("throughput"));
  EXPECT_EQ(all["prompts"]["values"], 40);
  EXPECT_EQ(all["prompts"]["runs"].size(), 1);
  EXPECT_EQ(all["prompts"]["values_per_s"], all["prompts"]["runs"][0]);
  EXPECT_GT(all["prompts"]["values_per_s"], 0);
  EXPECT_THAT(captured_.err(), IsEmpty());
}

TEST_F(BenchTest, PositionsNeedAModelWithoutAnEnd) {
  use_bundle(small_image_spec());
  options_.what = {"positions"};
  options_.positions = {20};
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("the model ends at 20"));
  EXPECT_THAT(captured_.err(), HasSubstr("--endless"));
}

TEST_F(BenchTest, MeasuresFromAGivenPosition) {
  use_bundle(small_hybrid_spec(HybridStyle::kLfm2));
  options_.what = {"engine", "memory", "operations"};
  options_.words = {{"--context", "100"}, {"--threads", "1"}};
  options_.from = 64;
  const OrderedJson all = figures();
  ASSERT_EQ(all["throughput"].size(), 2);
  for (const OrderedJson& one : all["throughput"]) EXPECT_EQ(one["from"], 64);
  expect_throughput(all["throughput"][0], "engine", 1, 36);  // the remaining positions of 101
  expect_throughput(all["throughput"][1], "engine", 3, 36);
  EXPECT_EQ(all["operations"].size(), 2);
  EXPECT_LT(all["memory"]["state_bytes"], small_hybrid_spec(HybridStyle::kLfm2).state_bytes());
  options_.from = 100;
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("--from 100 with 2 values after it: the model ends at "
                                         "101; add --context 101"));
  options_.from = 400;
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("ask for an earlier position"));
}

TEST_F(BenchTest, MeasuresAServer) {
  const TestServer server(served_bundle(small_image_spec(), 5));
  options_.server.address = server.server.address();
  const OrderedJson throughput = figures()["throughput"];
  ASSERT_EQ(throughput.size(), 4);
  expect_throughput(throughput[0], "streams", 1, 19);
  expect_throughput(throughput[1], "streams", 3, 19);
  expect_throughput(throughput[2], "samples", 1, 19);
  expect_throughput(throughput[3], "samples", 3, 19);
}

TEST_F(BenchTest, GivesAFirstValueToAModelThatHasNone) {
  Spec spec = small_image_spec();
  spec.begin.reset();
  const TestServer server(served_bundle(spec, 5));
  options_.server.address = server.server.address();
  options_.what = {"samples"};
  options_.batches = {2};
  expect_throughput(figures()["throughput"][0], "samples", 2, 19);
}

TEST_F(BenchTest, SaysWhichFlagsGiveAServerEnoughSessions) {
  const TestServer server(served_bundle(small_image_spec(), 5));
  options_.server.address = server.server.address();
  options_.batches = {9};
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("has 8 free sessions"));
  EXPECT_THAT(captured_.err(), HasSubstr("--sessions 9 --batch-rows 9 --samples 9"));
}

TEST_F(BenchTest, WritesAFileAndPrintsATable) {
  use_bundle(small_image_spec());
  options_.what = {"engine", "memory", "operations"};
  options_.json = false;
  options_.out = directory_.path() + "/out.json";
  ASSERT_EQ(run(), kExitOk) << captured_.err();
  EXPECT_THAT(captured_.out(), HasSubstr("values/s"));
  EXPECT_THAT(captured_.out(), HasSubstr("a step of batch 3"));
  EXPECT_THAT(captured_.out(), HasSubstr("bytes of memory"));
  EXPECT_TRUE(OrderedJson::parse(std::ifstream(options_.out)).contains("throughput"));
}

TEST_F(BenchTest, RefusesImpossibleMeasurements) {
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("say what to measure"));
  use_bundle(small_image_spec());
  options_.what = {"streams"};
  EXPECT_EQ(run(), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("--what streams needs --server ADDRESS"));
  options_.what = {"engine"};
  options_.bundle += "-of-another-name";
  EXPECT_EQ(run(), kExitFailed);
  EXPECT_THAT(captured_.err(), HasSubstr("-of-another-name"));
}

TEST(MeasureThroughput, ARunThatTakesTooLongIsCut) {
  std::vector<int64_t> values;
  const RunWork run = [&](const Work& work, const OnValues&) -> Result<double> {
    values.push_back(work.values);
    return static_cast<double>(work.values) * 0.5;
  };
  const Pace pace = {.values = 784, .sampled = 783, .seconds = 10};
  const Result<OrderedJson> cut = measure_throughput(run, 1, 1, pace, {});
  ASSERT_TRUE(cut.ok());
  EXPECT_THAT(values, ElementsAre(16, 40)) << "20 s at half a second each";
  EXPECT_EQ((*cut)["values"], 39);
  EXPECT_EQ((*cut)["cut_from"], 783);
  values.clear();
  const Result<OrderedJson> whole =
      measure_throughput(run, 1, 1, {.values = 784, .sampled = 783, .seconds = 200}, {});
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(values, ElementsAre(16, 784));
  EXPECT_FALSE(whole->contains("cut_from"));
}

TEST(BenchCommandTest, ReadsItsFlags) {
  for (const auto& [words, error] :
       std::vector<std::pair<std::string, std::string>>{{"bench --batch 0", "--batch"},
                                                        {"bench --batch 1,x", "--batch"},
                                                        {"bench --what everything", "--what"},
                                                        {"bench --values 1", "--values"},
                                                        {"bench --positions 0", "--positions"},
                                                        {"bench --from -1", "--from"},
                                                        {"bench a b", "b"}}) {
    Program program("test", "1.2.3");
    add_bench(program.root(), make_model);
    CapturedConsole captured;
    std::istringstream line(words);
    EXPECT_EQ(program.run({std::istream_iterator<std::string>(line), {}}, captured.console()),
              kExitUsage);
    EXPECT_THAT(captured.err(), HasSubstr(error)) << words;
  }
}

TEST(MachineLimitsTest, ArePositive) {
  const Result<OrderedJson> limits = measure_machine(1);
  ASSERT_TRUE(limits.ok());
  ASSERT_EQ(limits->size(), 1);
  for (const char* name : {"fp32_gflops", "l2_gbps", "l3_gbps", "dram_gbps", "dram_update_gbps"}) {
    EXPECT_GT(limits->at(0)[name], 0.1) << name;
  }
}

// A thread of gRPC must not be the last holder of a channel. Each round may reveal the fault.
TEST(ServerCalls, HoldNoChannelAfterTheirEnd) {
  TestServer test(served_fake("fake"));
  ModelView model;
  model.name = "fake";
  const Work work = {.calls = 4, .samples = 1, .values = 2, .seed = 1};
  for (int round = 0; round < 300; ++round) {
    const auto channel =
        grpc::CreateChannel(test.server.address(), grpc::InsecureChannelCredentials());
    Stubs stubs;
    stubs.inference.push_back(v1::Inference::NewStub(channel));
    const Result<double> seconds = run_on_server(stubs, model, work, [](int64_t) {});
    stubs.inference.clear();
    ASSERT_EQ(channel.use_count(), 1) << "round " << round;
    ASSERT_TRUE(seconds.ok()) << seconds.status().message();
  }
}

}  // namespace
}  // namespace runnel
