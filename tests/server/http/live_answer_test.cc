#include "server/http/live_answer.h"

#include <gtest/gtest.h>

#include <sstream>

namespace runnel {
namespace {

TEST(LiveAnswer, CountsAsACallAndHoldsItsMemoryWhileItExists) {
  std::ostringstream text;
  const EventLog log("info", false, text);
  ServerContext state(log);
  auto room = state.memory.take(1000);
  ASSERT_TRUE(room.ok());
  auto answer = live_answer(state, std::make_shared<MemoryBudget::Hold>(std::move(*room)));
  EXPECT_EQ(state.calls.count(), 1);
  EXPECT_EQ(state.memory.held(), 1000);
  state.calls.end_all({Code::kUnavailable, "the server is shutting down"});
  EXPECT_EQ(state.calls.count(), 1) << "it still goes out";
  answer.reset();
  EXPECT_EQ(state.calls.count(), 0);
  EXPECT_EQ(state.memory.held(), 0);
}

}  // namespace
}  // namespace runnel
