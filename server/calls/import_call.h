// An ImportSession call: receives a state file in pieces, and makes a session.
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
  // Sends the session that was made. finish() follows.
  virtual void answer(const SessionInfo& session) = 0;
};

// The door's thread checks the pieces as they arrive. The engine gets the state only after the
// whole file has been checked.
class ImportCall final : public Call {
 public:
  // The call is live from enter() on. `state` must outlive the call.
  static std::shared_ptr<ImportCall> make(ServerContext& state, CallStart start, ImportSink& sink);

  // Asks for the first message. Refuses the call with the errors of admit(), and while the server
  // loads its models or drains.
  void start();

  // To be called when the client's message, or the end of its messages, has arrived. True: one of
  // the functions below, or refuse(), must follow. False: the call has already ended.
  bool arrived() { return end_read(); }
  // Reserves the bytes of a message until the next message is requested. RESOURCE_EXHAUSTED.
  Status reserve(int64_t bytes);
  // To be called once, with the first message, which describes the session. Reserves memory for the
  // state. RESOURCE_EXHAUSTED.
  Status open(std::shared_ptr<const ServedModel> model, std::string id, bool allow_inexact);
  // Null before find_model().
  std::shared_ptr<const ServedModel> opened() const { return model(); }
  // Adds the next piece of the file. Only after open(). Errors of StateReader::add().
  Status add(std::span<const std::byte> piece);
  // Asks for the next message.
  void go_on();
  // To be called when the client has sent the whole file.
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

  // Used only by the door's thread.
  std::optional<StateReader> reader_;
  std::string id_;
  bool allow_inexact_ = false;
  // The memory of the state and of the message. The engine holds it, too, while it uses the state.
  const std::shared_ptr<MemoryBudget::Hold> room_ = std::make_shared<MemoryBudget::Hold>();

  // With mutex_ held.
  Phase phase_ = Phase::kIdle;
  std::optional<Result<std::vector<SessionInfo>>> made_;
};

}  // namespace runnel
