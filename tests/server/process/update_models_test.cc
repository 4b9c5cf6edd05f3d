#include "server/process/update_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/base/test_files.h"
#include "tests/server/test_models.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Models that each have a directory. All load, except those that a test makes fail.
class UpdateModels : public ::testing::Test {
 protected:
  UpdateModels() { models_.open(); }

  ModelConfig model(const std::string& name, const std::string& directory,
                    const std::vector<std::string>& aliases = {}) const {
    const std::string path = folder_.path(directory);
    std::filesystem::create_directory(path);
    if (!std::filesystem::exists(path + "/weights")) touch(directory);
    return {.name = name, .path = path, .aliases = aliases};
  }
  // Changes the files of a directory.
  void touch(const std::string& directory) const {
    folder_.write("next", directory);
    std::filesystem::rename(folder_.path("next"), folder_.path(directory) + "/weights");
  }
  ReloadReport update(const std::vector<ModelConfig>& wanted) {
    return update_models(models_, wanted, [&](const ModelConfig& from) -> Result<ServedModel> {
      ++loaded_;
      if (from.path == broken_) return invalid_argument(from.path + " is broken");
      ServedModel served = served_fake(from.name.empty() ? fake_spec().name : from.name);
      served.path = from.path;
      served.files = files_of(from);
      return served;
    });
  }
  // The name of the model that serves calls for `name`, or "" if there is none.
  std::string found(const std::string& name) const {
    const auto model = models_.find({}, name);
    return model.ok() ? (*model)->name : "";
  }

  const TestFolder folder_;
  ServedModels models_;
  std::string broken_;
  int loaded_ = 0;
};

TEST_F(UpdateModels, AReplacedGgufFileAndATemplateInASubfolderAreNoticed) {
  folder_.write("m.gguf", "first");
  const ModelConfig gguf = {.name = "m", .path = folder_.path("m.gguf")};
  const ModelConfig other = model("b", "b");
  EXPECT_THAT(update({gguf, other}).added, ElementsAre("m", "b"));
  EXPECT_THAT(update({gguf, other}).kept, ElementsAre("b", "m"));
  folder_.write("next", "other");
  std::filesystem::rename(folder_.path("next"), folder_.path("m.gguf"));
  EXPECT_THAT(update({gguf, other}).replaced, ElementsAre("m"));
  std::filesystem::create_directory(folder_.path("b/additional_chat_templates"));
  folder_.write("b/additional_chat_templates/tool_use.jinja", "{{ x }}");
  EXPECT_THAT(update({gguf, other}).replaced, ElementsAre("b"));
}

TEST_F(UpdateModels, AGivenTemplateDoesNotHideThatForTools) {
  ModelConfig given = model("a", "a");
  given.chat_template = "tool_use";
  EXPECT_THAT(update({given}).added, ElementsAre("a"));
  std::filesystem::create_directory(folder_.path("a/additional_chat_templates"));
  folder_.write("a/additional_chat_templates/tool_use.jinja", "{{ x }}");
  EXPECT_THAT(update({given}).replaced, ElementsAre("a"));
}

TEST_F(UpdateModels, ModelsComeAndGo) {
  EXPECT_THAT(update({model("a", "a"), model("b", "b")}).added, ElementsAre("a", "b"));
  const auto kept = *models_.find({}, "b");
  const ReloadReport report = update({model("b", "b"), model("c", "c")});
  EXPECT_THAT(report.added, ElementsAre("c"));
  EXPECT_THAT(report.retired, ElementsAre("a"));
  EXPECT_THAT(report.kept, ElementsAre("b"));
  EXPECT_THAT(report.replaced, IsEmpty());
  EXPECT_EQ(found("a"), "");
  EXPECT_EQ(*models_.find({}, "b"), kept);
  EXPECT_EQ(loaded_, 3) << "what is kept is not loaded";
}

TEST_F(UpdateModels, AModelWithOtherFilesOrAnotherPathIsReplaced) {
  update({model("a", "a"), model("", "b")});
  touch("a");
  EXPECT_THAT(update({model("a", "a"), model("", "b")}).replaced, ElementsAre("a"));
  const ReloadReport report = update({model("a", "elsewhere"), model("", "b")});
  EXPECT_THAT(report.replaced, ElementsAre("a"));
  EXPECT_THAT(report.kept, ElementsAre(fake_spec().name)) << "its own name is still its own";
}

TEST_F(UpdateModels, IfAModelIsRefusedNoneIsRetired) {
  update({model("v1", "v1", {"chat"}), model("other", "other")});
  broken_ = folder_.path("v2");
  ReloadReport report = update({model("v2", "v2", {"chat"}), model("new", "new", {"news"})});
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_EQ(report.refused[0].model, "v2");
  EXPECT_THAT(report.refused[0].reason, HasSubstr("is broken"));
  EXPECT_THAT(report.added, ElementsAre("new"));
  EXPECT_THAT(report.retired, IsEmpty());
  EXPECT_THAT(report.kept, ElementsAre("other", "v1"));
  EXPECT_EQ(found("chat"), "v1");
  EXPECT_EQ(found("news"), "new");
  broken_.clear();
  report = update({model("v2", "v2", {"chat"}), model("new", "new", {"news"})});
  EXPECT_THAT(report.retired, ElementsAre("other", "v1"));
  EXPECT_EQ(found("chat"), "v2");
}

TEST_F(UpdateModels, AModelThatFailsToLoadLeavesTheOldOneServing) {
  update({model("a", "a", {"alias"})});
  const auto before = *models_.find({}, "a");
  touch("a");
  broken_ = folder_.path("a");
  const ReloadReport report = update({model("a", "a", {"alias"})});
  EXPECT_EQ(report.refused.size(), 1U);
  EXPECT_THAT(report.kept, ElementsAre("a"));
  EXPECT_EQ(*models_.find({}, "a"), before);
  EXPECT_EQ(found("alias"), "a");
}

TEST_F(UpdateModels, AliasesMoveAndGo) {
  update({model("a", "a", {"latest", "old"}), model("b", "b")});
  EXPECT_EQ(found("latest"), "a");
  const ReloadReport report = update({model("a", "a"), model("b", "b", {"latest"})});
  EXPECT_THAT(report.kept, ElementsAre("a", "b"));
  EXPECT_EQ(found("latest"), "b");
  EXPECT_EQ(found("old"), "");
}

TEST_F(UpdateModels, NamesOfBundlesMustDiffer) {
  const std::string name = fake_spec().name;
  ReloadReport report = update({model("", "a"), model("", "b")});
  EXPECT_THAT(report.added, ElementsAre(name));
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_EQ(report.refused[0].model, folder_.path("b"));
  EXPECT_THAT(report.refused[0].reason, HasSubstr("two models are named '" + name + "'"));
  report = update({model("", "a"), model("b", "b", {name})});
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_EQ(report.refused[0].model, name);
  EXPECT_EQ((*models_.find({}, name))->path, folder_.path("a"));
}

// A model's name may be in its files, which may change in place.
TEST_F(UpdateModels, AnAliasFollowsAModelWhoseFilesHaveAnotherName) {
  for (const auto& [before, after] : {std::pair("a", "z"), std::pair("z", "a")}) {
    const ModelConfig wanted = model("", before + std::string(after), {"latest"});
    const auto named = [&](const std::string& name) {
      return update_models(models_, {wanted}, [&](const ModelConfig& from) -> Result<ServedModel> {
        Spec spec = fake_spec();
        spec.name = name;
        ServedModel served = served_fake(name, {}, {}, kTestLimits, spec);
        served.path = from.path;
        served.files = files_of(from);
        return served;
      });
    };
    named(before);
    EXPECT_EQ(found("latest"), before);
    touch(before + std::string(after));
    EXPECT_THAT(named(after).retired, ElementsAre(before));
    EXPECT_EQ(found("latest"), after);
  }
}

TEST_F(UpdateModels, ARefusedAliasTakesNoneAway) {
  update({model("a", "a", {"prod"})});
  const ReloadReport report = update({model("b", "b"), model("c", "c", {"b"})});
  EXPECT_EQ(report.refused.size(), 1U);
  EXPECT_THAT(report.retired, IsEmpty());
  EXPECT_EQ(found("prod"), "a");
}

}  // namespace
}  // namespace runnel
