// Computes the calls of a session's log again, one after the other. Their values are discarded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "server/host/call_log.h"
#include "server/host/served_models.h"

namespace runnel {

class KeptSessions;

class Replay : public std::enable_shared_from_this<Replay> {
 public:
  using Done = std::function<void(const Status&)>;

  // `kept` must outlive the model.
  Replay(KeptSessions& kept, std::shared_ptr<const ServedModel> model, SessionKey session,
         std::vector<LoggedCall> calls)
      : kept_(kept),
        model_(std::move(model)),
        session_(std::move(session)),
        calls_(std::move(calls)) {}
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // To be called once. The engine must have the session at the position where the log begins, and
  // no other call may use it. `done` is called once, on the thread of KeptSessions::replays().
  // INTERNAL if a call ends at another position than in the log; FAILED_PRECONDITION if this server
  // does not accept such a call, or samples other values; UNAVAILABLE if it drains; errors of a
  // generation.
  void start(Done done);

 private:
  void run_next();
  void take();
  void take_end(Status status);
  void finish(const Status& status);
  Status refusal_of(const Status& status) const;

  KeptSessions& kept_;
  const std::shared_ptr<const ServedModel> model_;
  const SessionKey session_;
  std::vector<LoggedCall> calls_;
  size_t at_ = 0;  // in calls_

  // On the thread of KeptSessions::replays().
  Done done_;
  std::shared_ptr<TokenStream> stream_;  // of the running call; keeps this object alive
  int64_t position_ = -1;                // the position at which that call has ended
  uint64_t sampled_ = kNoValues;         // as LoggedCall::sampled
};

}  // namespace runnel
