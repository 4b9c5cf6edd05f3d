#include "server/process/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/engine/fake_model.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

class ModelLoaderTest : public ::testing::Test {
 protected:
  ModelLoaderTest() {
    write_bundle(from_.path, small_symbol_spec(), random_tensors(small_symbol_spec(), 1));
  }
  Result<ServedModel> load(const std::function<bool()>& stopped, const ShowLoading& show = {}) {
    return ModelLoader(config_, factory_, clock_, log_, stopped).load(from_, show);
  }

  const TempDir directory_;
  const ModelConfig from_{.name = "named", .path = directory_.path() + "/bundle"};
  const ServerConfig config_;
  const Clock clock_;
  std::ostringstream log_text_;
  const EventLog log_{"info", false, log_text_};
  int made_ = 0;
  const ModelFactory factory_ = [this](const Bundle& bundle, const ServerConfig&,
                                       ModelLimits limits) {
    ++made_;
    limits.slots = 4;
    return Result<LoadedModel>(
        LoadedModel{nullptr, std::make_unique<FakeModel>(bundle.spec, limits)});
  };
};

TEST_F(ModelLoaderTest, KnowsWhatAModelWasLoadedFrom) {
  const Result<ServedModel> loaded = load([] { return false; });
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->name, "named");
  EXPECT_EQ(loaded->path, from_.path);
  EXPECT_EQ(loaded->files, directory_stamp(from_.path));
  EXPECT_THAT(log_text_.str(), HasSubstr("loaded model=named"));
}

TEST_F(ModelLoaderTest, EndsInTheMiddleOfAFileOnceItIsStopped) {
  bool stopped = false;
  const auto stop = [&](int64_t done, int64_t) { stopped = stopped || done > 0; };
  const Result<ServedModel> loaded = load([&] { return stopped; }, stop);
  EXPECT_EQ(loaded.status().code(), Code::kCancelled);
  EXPECT_EQ(made_, 0);
}

}  // namespace
}  // namespace runnel
