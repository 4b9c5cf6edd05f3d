// One running Score call: a sequence of its own, fed chunk after chunk. All but `cancelled` belongs
// to the scheduler's thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/session.h"

namespace runnel {

class ScoreCall {
 public:
  ScoreCall(std::string owner, std::optional<std::string> origin)
      : owner(std::move(owner)), origin(std::move(origin)) {}

  const std::string owner;
  const std::optional<std::string> origin;  // the session that it starts from
  std::atomic<bool> cancelled{false};

  std::unique_ptr<Session> session;  // null until the first chunk
  std::vector<int32_t> values;       // the chunk at work
  size_t fed = 0;                    // of it
  TimePoint came{};                  // when it did
  ScoredChunk scored;
  std::function<void(Result<ScoredChunk>)> done;  // empty while no chunk is at work

  // Its slot has gone back: no chunk can be fed any more.
  bool over() const { return session != nullptr && session->state == SessionState::kEnded; }

  std::span<const int32_t> unfed() const { return std::span(values).subspan(fed); }

  // Hands the chunk's outcome to its owner.
  void complete(Result<ScoredChunk> outcome) {
    const auto call = std::exchange(done, nullptr);
    if (call) call(std::move(outcome));
  }
};

}  // namespace runnel
