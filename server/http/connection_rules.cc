#include "server/http/connection_rules.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

// How long a connection stays open and reads after its last answer. Closing with unread bytes would
// reset the connection, and the client would lose the answer.
constexpr auto kLingerTime = std::chrono::seconds(2);

}  // namespace

int lingering_share(const HttpLimits& limits) {
  return std::max(1, limits.lingering / limits.threads);
}

ConnectionRules::Next ConnectionRules::deadline_passed(TimePoint now) {
  if (now < deadline_) return Next::kWait;
  if (phase_ == Phase::kAnswering && !writing_) return Next::kHeartbeat;
  return phase_ == Phase::kReading ? Next::kRefuseLate : Next::kClose;
}

bool ConnectionRules::close() {
  deadline_ = TimePoint::max();
  return std::exchange(phase_, Phase::kClosed) != Phase::kClosed;
}

// True if too many bytes of later requests have arrived, or the client has ended its side.
bool ConnectionRules::is_watched(size_t pending) const {
  return phase_ == Phase::kAnswering && (client_ended_ || pending >= kHttpReadBytes);
}

ConnectionRules::Next ConnectionRules::read(size_t pending) {
  if (is_watched(pending)) return std::exchange(watching_, true) ? Next::kWait : Next::kWatch;
  if (phase_ == Phase::kClosed || client_ended_) return Next::kWait;
  return std::exchange(reading_, true) ? Next::kWait : Next::kRead;
}

ConnectionRules::Next ConnectionRules::came(bool end) {
  reading_ = false;
  client_ended_ = end;
  if (phase_ == Phase::kHangingUp) return end ? Next::kClose : Next::kWait;
  return phase_ == Phase::kAnswering ? Next::kPass : Next::kParse;
}

bool ConnectionRules::watched(size_t pending) {
  watching_ = false;
  return is_watched(pending);
}

ConnectionRules::Next ConnectionRules::probe() const {
  return answer_.begun || writing_ ? Next::kWait : Next::kContinue;
}

void ConnectionRules::next_request(TimePoint now) {
  answer_ = {};
  phase_ = Phase::kIdle;
  deadline_ = now + limits_.idle_timeout;
}

void ConnectionRules::begin_request(TimePoint now) {
  phase_ = Phase::kReading;
  deadline_ = now + limits_.read_timeout;
}

ConnectionRules::Next ConnectionRules::needs_more() const {
  if (!client_ended_) return Next::kWait;
  return phase_ == Phase::kIdle ? Next::kClose : Next::kRefuseCut;
}

ConnectionRules::Next ConnectionRules::want_body() {
  return std::exchange(answer_.client_waits, false) ? Next::kContinue : Next::kWait;
}

void ConnectionRules::end_request(TimePoint now) {
  phase_ = Phase::kAnswering;
  // A "100 Continue" may be blocked.
  deadline_ = writing_ ? now + limits_.write_timeout : TimePoint::max();
}

ConnectionRules::Next ConnectionRules::send(int64_t bytes, TimePoint now) {
  unsent_ += bytes;
  return write(now);
}

ConnectionRules::Next ConnectionRules::answer(int64_t bytes, bool last, TimePoint now) {
  unsent_ += bytes;
  answer_.client_waits = false;
  answer_.begun = true;
  if (last) {
    answer_.complete = true;
    const std::chrono::seconds more(unsent_ / limits_.slowest_bytes);
    answer_.done_by = now + limits_.write_timeout + more;
  }
  if (unsent_ > 0) return write(now);
  return last ? Next::kFinish : Next::kWait;
}

ConnectionRules::Next ConnectionRules::refuse(int64_t bytes, TimePoint now) {
  phase_ = Phase::kAnswering;
  deadline_ = now + limits_.write_timeout;
  return answer(bytes, true, now);
}

ConnectionRules::Next ConnectionRules::write(TimePoint now) {
  if (std::exchange(writing_, true)) return Next::kWait;
  if (phase_ == Phase::kAnswering) {
    deadline_ = std::min(now + limits_.write_timeout, answer_.done_by);
  }
  return Next::kWrite;
}

ConnectionRules::Next ConnectionRules::written(int64_t bytes, TimePoint now) {
  writing_ = false;
  unsent_ -= bytes;
  if (unsent_ > 0) return write(now);
  if (phase_ != Phase::kAnswering) return Next::kWait;
  if (answer_.complete) return Next::kFinish;
  deadline_ = answer_.has_heartbeat ? now + limits_.heartbeat : TimePoint::max();
  return Next::kWait;
}

ConnectionRules::Next ConnectionRules::hang_up(bool in_pieces, TimePoint now) {
  phase_ = Phase::kHangingUp;
  if (client_ended_) return Next::kClose;
  deadline_ = now + (in_pieces ? limits_.write_timeout : kLingerTime);
  return Next::kLinger;
}

}  // namespace runnel
