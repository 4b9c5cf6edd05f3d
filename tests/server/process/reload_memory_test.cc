// Reloads that take more memory than clients may make the server take, or that fail.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <thread>
#include <vector>

#include "base/limits.h"
#include "config/key_file.h"
#include "runnel/v1/admin.grpc.pb.h"
#include "server/process/serve.h"
#include "tests/base/eventually.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/grpc/test_server.h"

namespace runnel {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Keeps a log, and gives the server's address as soon as the line `ready` is there.
class LogBuffer final : public std::streambuf {
 public:
  std::string address() {
    auto found = address_.get_future();
    const bool ready = found.wait_for(kPatience) == std::future_status::ready;
    return ready ? found.get() : "";
  }
  // After the server has ended.
  const std::string& text() const { return text_; }

 private:
  int overflow(int c) override {
    text_ += static_cast<char>(c);
    if (c != '\n') return c;
    const std::string line = text_.substr(line_);
    line_ = text_.size();
    const size_t at = line.find(" address=");
    if (line.find(" info ready ") != std::string::npos && at != std::string::npos) {
      address_.set_value(line.substr(at + 9, line.find_first_of(" \n", at + 9) - at - 9));
    }
    return c;
  }

  std::string text_;
  size_t line_ = 0;  // where the last line begins
  std::promise<std::string> address_;
};

// A server in this process, whose client may reload. The model that a reload adds takes 200 MiB
// within a second while it is loaded. Clients may make the server take about 70 MiB.
class GrowingServer {
 public:
  GrowingServer() {
    write_bundle(bundle_, small_symbol_spec(), random_tensors(small_symbol_spec(), 1));
    config_.keys = directory_.path() + "/keys.jsonl";
    const Status written = change_key_file(config_.keys, true, [](std::vector<KeyEntry>& all) {
      all.emplace_back();
      all[0].name = "root";
      all[0].digest = digest_of_key("key");
      all[0].admin = true;
      return Status();
    });
    EXPECT_TRUE(written.ok()) << written.message();
    config_.address = "127.0.0.1:0";
    const auto all = all_limits();
    const auto network = std::ranges::find(all, &limits::kNetworkBytes) - all.begin();
    config_.limits.at(static_cast<size_t>(network)) = limits::kNetworkBytes.min;
    config_.models = {{.name = "small", .path = bundle_}};
    wanted_ = config_;
    wanted_.models.push_back({.name = "large", .path = bundle_});
    const Rereading rereading = {.read = [this] { return Result<ServerConfig>(wanted_); }};
    thread_ = std::thread(
        [this, rereading] { code_ = serve(config_, rereading, factory_, log_, "test"); });
    channel_ = grpc::CreateChannel(buffer_.address(), grpc::InsecureChannelCredentials());
  }
  ~GrowingServer() {
    if (thread_.joinable()) end();
  }

  // Makes the device fail, which ends the server. Returns the log.
  const std::string& end() {
    fails_ = true;
    grpc::ClientContext context;
    prepare(context);
    v1::GenerateRequest request = generate_request({1}, 3);
    request.set_model("small");
    const auto reader = v1::Inference::NewStub(channel_)->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    thread_.join();
    EXPECT_EQ(code_, 3) << buffer_.text();
    EXPECT_THAT(buffer_.text(), Not(HasSubstr("warn flood")));
    return buffer_.text();
  }

  // Sends 256 KiB. Returns the status.
  grpc::StatusCode send_much() const {
    grpc::ClientContext context;
    prepare(context);
    v1::GetModelRequest request;
    request.set_name(std::string(256 << 10, 'x'));
    v1::ModelInfo model;
    return v1::Models::NewStub(channel_)->GetModel(&context, request, &model).error_code();
  }
  grpc::Status reload() const {
    grpc::ClientContext context;
    prepare(context);
    v1::ReloadResponse report;
    return v1::Admin::NewStub(channel_)->Reload(&context, {}, &report);
  }

  std::atomic<bool> throws{false};  // while a model is loaded

 private:
  static void prepare(grpc::ClientContext& context) {
    context.AddMetadata("authorization", "Bearer key");
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
  }
  Result<LoadedModel> make(const Bundle& bundle, ModelLimits limits) {
    if (throws) throw std::runtime_error("thrown by the test");
    for (int i = 0; bundle.spec.name == "large" && i < 50; ++i) {
      memory_.emplace_back(4 << 20, 'm');
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    limits.slots = 4;
    auto model = std::make_unique<FakeModel>(bundle.spec, limits);
    model->fails = [this] { return fails_.load(); };
    return LoadedModel{nullptr, std::move(model)};
  }

  const TempDir directory_;
  const std::string bundle_ = directory_.path() + "/bundle";
  ServerConfig config_, wanted_;
  LogBuffer buffer_;
  std::ostream stream_{&buffer_};
  const EventLog log_{"info", false, stream_};
  const ModelFactory factory_ = [this](const Bundle& bundle, const ServerConfig&,
                                       const ModelLimits& limits) { return make(bundle, limits); };
  std::vector<std::string> memory_;
  std::atomic<bool> fails_{false};
  int code_ = -1;
  std::thread thread_;
  std::shared_ptr<grpc::Channel> channel_;
};

// gRPC refuses a call with RESOURCE_EXHAUSTED if messages of others have just taken the network's
// memory. Who is cut off gets UNAVAILABLE.
TEST(ReloadMemory, CutsOffNobody) {
  GrowingServer server;
  ASSERT_TRUE(eventually([&] { return server.send_much() == grpc::StatusCode::NOT_FOUND; }));
  std::atomic<bool> over{false};
  std::thread sender([&] {
    while (!over) {
      EXPECT_THAT(server.send_much(),
                  AnyOf(grpc::StatusCode::NOT_FOUND, grpc::StatusCode::RESOURCE_EXHAUSTED));
    }
  });
  grpc::Status reloaded;
  EXPECT_TRUE(eventually([&] {
    reloaded = server.reload();
    return reloaded.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED;
  }));
  EXPECT_TRUE(reloaded.ok()) << reloaded.error_message();
  over = true;
  sender.join();
}

TEST(ReloadMemory, AReloadThatThrowsIsLoggedAndEndsNothingElse) {
  GrowingServer server;
  server.throws = true;
  const grpc::Status failed = server.reload();
  EXPECT_EQ(failed.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(server.send_much(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(server.end(),
              AllOf(HasSubstr("warn reload message="), HasSubstr("thrown by the test")));
}

}  // namespace
}  // namespace runnel
