#include "models/bundle/name.h"

#include <gtest/gtest.h>

#include <string>

namespace runnel {
namespace {

TEST(Name, IsTheNameOfTheDirectory) {
  EXPECT_EQ(name_of_directory("zoo/rwkv7-0.1B"), "rwkv7-0.1B");
  EXPECT_EQ(name_of_directory("/models/rwkv7-0.1B/"), "rwkv7-0.1B");
  EXPECT_EQ(name_of_directory("/models/a/../b/."), "b");
  EXPECT_EQ(name_of_directory("/models/two words+\xc3\xa9"), "two-words---");
  EXPECT_EQ(name_of_directory("/"), "model");
  EXPECT_EQ(name_of_directory("/" + std::string(200, 'n')), std::string(128, 'n'));
}

TEST(Name, InTheCacheOfHuggingFaceIsTheNameOfTheModel) {
  const std::string cache = "/cache/huggingface/hub/";
  EXPECT_EQ(name_of_directory(cache + "models--fla-hub--rwkv7-0.4B-g1/snapshots/0f1e2d"),
            "rwkv7-0.4B-g1");
  EXPECT_EQ(name_of_directory(cache + "models--gpt2/snapshots/0f1e2d/"), "gpt2");
  EXPECT_EQ(name_of_directory("/data/snapshots/0f1e2d"), "0f1e2d");
}

TEST(Name, HasPlainCharacters) {
  EXPECT_TRUE(is_model_name("RWKV7-Goose_0.1B"));
  EXPECT_FALSE(is_model_name(""));
  EXPECT_FALSE(is_model_name("a/b"));
  EXPECT_FALSE(is_model_name(std::string(129, 'a')));
}

}  // namespace
}  // namespace runnel
