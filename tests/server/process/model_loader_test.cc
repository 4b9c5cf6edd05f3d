#include "server/process/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <sstream>
#include <system_error>

#include "server/process/update_models.h"
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
  ModelConfig from_{.name = "named", .path = directory_.path() + "/bundle"};
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

TEST_F(ModelLoaderTest, RecordsTheFilesOfALoadedModel) {
  const Result<ServedModel> loaded = load([] { return false; });
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->name, "named");
  EXPECT_EQ(loaded->path, from_.path);
  EXPECT_EQ(loaded->files, files_of(from_));
  EXPECT_THAT(log_text_.str(), HasSubstr("loaded model=named"));
}

// A bundle of a byte model, and a template that the operator gives.
TEST_F(ModelLoaderTest, ATemplateOfTheOperatorReplacesThatOfTheModel) {
  write_bundle(from_.path, small_text_spec(), random_tensors(small_text_spec(), 1));
  EXPECT_EQ(load([] { return false; })->chat, nullptr);
  EXPECT_EQ(load([] { return false; })->no_chat, "there is no template among its files");
  const std::string own = from_.path + "/chat_template.jinja", given = directory_.path() + "/t";
  write_file(own, "{{ messages[0].content }}");
  EXPECT_EQ(load([] { return false; })->chat->name(), "chat_template.jinja");
  write_file(own, "{{ raise_exception('no') }}");
  EXPECT_THAT(load([] { return false; })->no_chat, HasSubstr("refuses a plain conversation: no"));
  write_file(given, "{{ messages[0].content }}");
  from_.chat_template = given;
  const Result<ServedModel> loaded = load([] { return false; });
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->chat->name(), "t") << "callers hear of no folder";
  EXPECT_EQ(loaded->files, files_of(from_));
  write_file(given, "{% if %} and more");
  EXPECT_NE(loaded->files, files_of(from_)) << "a reload loads it again";
  EXPECT_THAT(load([] { return false; }).status().message(),
              HasSubstr("chat_template '" + given + "': t, line 1: "));
}

TEST_F(ModelLoaderTest, CanBeStoppedInTheMiddleOfAFile) {
  bool stopped = false;
  const auto stop = [&](int64_t, int64_t) { stopped = true; };
  const Result<ServedModel> loaded = load([&] { return stopped; }, stop);
  EXPECT_EQ(loaded.status().code(), Code::kCancelled);
}

// A reload continues with its other models, as after any model that does not load.
TEST_F(ModelLoaderTest, AModelForWhichThereIsNoThreadIsRefused) {
  const ModelFactory no_thread = [](const Bundle&, const ServerConfig&,
                                    const ModelLimits&) -> Result<LoadedModel> {
    throw std::system_error(EAGAIN, std::generic_category());
  };
  const auto never = [] { return false; };
  const Result<ServedModel> loaded =
      ModelLoader(config_, no_thread, clock_, log_, never).load(from_);
  EXPECT_EQ(loaded.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(loaded.status().message(), HasSubstr(from_.path + ": the system gives no thread"));
}

}  // namespace
}  // namespace runnel
