// An ImportSession call: a state file in, in pieces; a session out.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "models/state/file.h"
#include "server/calls/call.h"

namespace runnel {

class ImportSink : public CallSink {
 public:
  // Asks the client for its next message; ImportCall::arrived() follows, unless the call ends.
  virtual void read() = 0;
  // The session that was made; finish() follows.
  virtual void answer(const SessionInfo& session) = 0;
};

// The pieces are checked as they come, on the door's thread. Nothing reaches the engine before the
// whole file is known to be good.
class ImportCall final : public Call {
 public:
  // The call is live from enter() on. `sink` is the door's. `state` outlives the call.
  static std::shared_ptr<ImportCall> make(ServerContext& state, CallStart start, ImportSink& sink);

  // Asks for the first message; refuses the call as admit() does, and where the server loads its
  // models or drains.
  void start();

  // The client's message, or its end, has come. True: one of the functions below, or refuse(), must
  // follow. False: the call has ended meanwhile.
  bool arrived() { return end_read(); }
  // Reserves the bytes of a message until the next one is asked for.
  // RESOURCE_EXHAUSTED.
  Status reserve(int64_t bytes);
  // With the first message, once: what the session is to be. Makes room for its state.
  // RESOURCE_EXHAUSTED.
  Status open(std::shared_ptr<const ServedModel> model, std::string id, bool allow_inexact);
  // Null before open().
  std::shared_ptr<const ServedModel> opened() const { return model(); }
  // The next piece of the file; after open(). What StateReader::add() says.
  Status add(std::span<const std::byte> piece);
  // The message has been dealt with: asks for the next.
  void go_on();
  // The client has sent the whole file.
  void close();

 private:
  enum class Phase { kIdle, kReading, kMaking, kMade };

  ImportCall(ServerContext& state, CallStart start, ImportSink& sink);
  Step next() override;
  int64_t held() const;
  Result<StateImage> whole_image();
  void note(Result<std::vector<SessionInfo>> made);
  void set_phase(Phase phase);

  ImportSink& sink_;

  // The door's.
  std::optional<StateReader> reader_;
  std::string id_;
  bool allow_inexact_ = false;
  // Of the state and what is read of it; the engine's, too, while it has the state.
  const std::shared_ptr<MemoryBudget::Hold> room_ = std::make_shared<MemoryBudget::Hold>();

  // With mutex_ held.
  Phase phase_ = Phase::kIdle;
  std::optional<Result<std::vector<SessionInfo>>> made_;
};

}  // namespace runnel
