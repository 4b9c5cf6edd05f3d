#include "server/http/live_answer.h"

#include <utility>

namespace runnel {
namespace {

// Its connection limits how long it may live.
class Entry final : public LiveCall {
 public:
  void end(const Status& /*status*/) override {}
  void tend(TimePoint /*now*/) override {}
};

class LiveAnswer {
 public:
  LiveAnswer(LiveCalls& calls, std::shared_ptr<const void> held)
      : calls_(calls), held_(std::move(held)) {
    calls_.enter(entry_);
  }
  LiveAnswer(const LiveAnswer&) = delete;
  LiveAnswer& operator=(const LiveAnswer&) = delete;
  ~LiveAnswer() {
    held_.reset();
    calls_.leave(entry_);  // last: from now on, a drain may destroy the state
  }

 private:
  LiveCalls& calls_;
  std::shared_ptr<const void> held_;
  const std::shared_ptr<LiveCall> entry_ = std::make_shared<Entry>();
};

}  // namespace

std::shared_ptr<const void> live_answer(ServerContext& state, std::shared_ptr<const void> held) {
  return std::make_shared<LiveAnswer>(state.calls, std::move(held));
}

}  // namespace runnel
