#include "server/host/stored_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "models/state/file.h"
#include "tests/base/test_files.h"
#include "tests/models/bundle/bundle_writer.h"
#include "tests/server/test_models.h"

namespace runnel {
namespace {

using testing::HasSubstr;

class StoredStates : public testing::Test {
 protected:
  std::string file(const std::string& digest, const std::string& numerics = "elsewhere") const {
    StateLayout layout = model_.engine->layout();
    layout.numerics = numerics;
    StateImage image = {.position = 2, .pending = 3, .bytes = {}};
    image.bytes.resize(static_cast<size_t>(layout.state_bytes));
    return StateWriter(digest, layout, image, nullptr).next(1 << 20);
  }
  void put(const std::string& name, const std::string& bytes) const {
    write_file(directory_ + "/" + name, bytes);
  }
  Result<std::vector<StoredState>> load() {
    return load_states(directory_, digest_, *model_.engine);
  }

  const TestFolder folder_;
  const std::string directory_ = folder_.path("");
  ServedModel model_ = served_bundle(small_symbol_spec(), 1);
  const std::string digest_ = model_digest(small_symbol_spec(), "");
};

TEST_F(StoredStates, LoadsTheFilesOfThisModelInOrderOfTheirNames) {
  put("b.state", file(digest_));
  put("a.state", file(digest_));
  put("other.state", file(model_digest(small_gated_spec(), "")));
  put("readme.txt", "no state");
  const auto states = load();
  ASSERT_TRUE(states.ok()) << states.status().message();
  ASSERT_EQ(states->size(), 2U);
  EXPECT_EQ((*states)[0].name, "a");
  EXPECT_EQ((*states)[0].position, 2);
  EXPECT_EQ((*states)[1].numerics, "elsewhere");
  EXPECT_TRUE(eventually([&] { return model_.engine->stats().sessions_free == 6; }));
}

TEST_F(StoredStates, ErrorsNameTheFile) {
  put("bad.state", file(digest_).substr(0, 200));
  EXPECT_THAT(load().status().message(), HasSubstr("/bad.state: the state file "));
  std::filesystem::remove(directory_ + "/bad.state");
  put("a b.state", file(digest_));
  EXPECT_THAT(load().status().message(), HasSubstr("the name of a stored state must be"));
  std::filesystem::remove_all(directory_);
  EXPECT_EQ(load().status().code(), Code::kNotFound);
}

TEST_F(StoredStates, MoreThanThereAreSlotsAreRefused) {
  for (int i = 0; i < 9; ++i) put("s" + std::to_string(i) + ".state", file(digest_));
  const Status status = load().status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("/s8.state: no room"));
}

}  // namespace
}  // namespace runnel
