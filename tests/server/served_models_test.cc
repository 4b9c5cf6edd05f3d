#include "server/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/test_models.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

TEST(ServedModels, AreFoundByNameOnceOpen) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_EQ(models.find({}, "a").status().code(), Code::kUnavailable);
  models.open();
  EXPECT_EQ((*models.find({}, "a"))->name, "a");
  EXPECT_EQ((*models.find({}, ""))->name, "a");
  EXPECT_EQ(models.find({}, "b").status().message(), "no model 'b'; this server has 'a'");
}

TEST(ServedModels, OfOneNameThereIsOne) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_EQ(models.add(served_fake("a")).code(), Code::kAlreadyExists);
}

TEST(ServedModels, AModelThatACallerMayNotUseIsNotThere) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_TRUE(models.add(served_fake("b")).ok());
  models.open();
  const Caller caller = {.name = "ada", .models = {{"b"}}, .limits = {}};
  EXPECT_EQ(models.find(caller, "a").status().message(), "no model 'a'; this server has 'b'");
  EXPECT_EQ((*models.find(caller, ""))->name, "b");
  EXPECT_EQ(models.all_for(caller).size(), 1U);
  EXPECT_THAT(models.find({}, "").status().message(), HasSubstr("name one of 'a', 'b'"));
}

}  // namespace
}  // namespace runnel
