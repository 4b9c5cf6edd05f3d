#include "server/openai/response_store.h"

#include <gtest/gtest.h>

namespace runnel {
namespace {

// Room for four responses of 1 KiB.
constexpr int64_t kRoom = 4 * (2 << 10) + 64;

class ResponseStoreTest : public testing::Test {
 protected:
  void put(const std::string& owner, const std::string& id) {
    store_.put(owner, id, {std::string(512, 'm'), std::string(512, 'r')}, clock_.now());
  }
  bool has(const std::string& owner, const std::string& id) {
    return store_.find(owner, id, clock_.now()) != nullptr;
  }

  Clock clock_{TimePoint(std::chrono::hours(100))};
  MemoryBudget memory_{ResponseStore::kShare * kRoom};
  ResponseStore store_{memory_};
};

TEST_F(ResponseStoreTest, AResponseBelongsToItsOwner) {
  put("a", "1");
  EXPECT_EQ(store_.find("a", "1", clock_.now())->messages, std::string(512, 'm'));
  EXPECT_FALSE(has("b", "1"));
  EXPECT_FALSE(store_.erase("b", "1", clock_.now()));
  EXPECT_TRUE(store_.erase("a", "1", clock_.now()));
  EXPECT_FALSE(has("a", "1"));
  EXPECT_EQ(memory_.held(), 0);
}

TEST_F(ResponseStoreTest, EvictsTheLeastRecentlyUsedResponseOfTheOwnerWithMost) {
  put("a", "1");
  put("b", "1");
  put("b", "2");
  put("b", "3");
  EXPECT_TRUE(has("b", "1"));
  put("b", "4");
  EXPECT_TRUE(has("a", "1") && has("b", "1") && has("b", "3") && has("b", "4"));
  EXPECT_FALSE(has("b", "2"));
  EXPECT_LE(memory_.held(), kRoom);
}

TEST_F(ResponseStoreTest, AnUnusedResponseExpires) {
  put("a", "1");
  put("a", "2");
  clock_.advance(ResponseStore::kIdle / 2);
  const auto found = store_.find("a", "1", clock_.now());
  clock_.advance(ResponseStore::kIdle / 2);
  EXPECT_TRUE(has("a", "1"));
  EXPECT_FALSE(has("a", "2"));
  clock_.advance(ResponseStore::kIdle);
  EXPECT_FALSE(has("a", "1"));
  EXPECT_EQ(found->response, std::string(512, 'r')) << "who found it still has it";
}

TEST_F(ResponseStoreTest, AResponseThatDoesNotFitIsNotKeptAndEvictsNone) {
  put("a", "0");
  store_.put("a", "1", {std::string(kRoom, 'm'), ""}, clock_.now());
  EXPECT_FALSE(has("a", "1"));
  EXPECT_TRUE(has("a", "0"));
  EXPECT_TRUE(store_.erase("a", "0", clock_.now()));
  const auto calls = memory_.take(memory_.size() - 100);
  put("a", "2");
  EXPECT_FALSE(has("a", "2"));
}

}  // namespace
}  // namespace runnel
