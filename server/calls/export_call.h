// An ExportSession call: sends the state of a session as a state file, in pieces.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "models/state/file.h"
#include "server/calls/call.h"

namespace runnel {

// The longest time after which an exported state may expire.
inline constexpr std::chrono::seconds kMostExpiry = std::chrono::hours(24 * 3653);

class ExportSink : public CallSink {
 public:
  // Sends a piece of the file; Call::written() follows, unless it throws std::bad_alloc.
  virtual void write(std::string piece) = 0;
};

// Who may use an exported state, and until when. Only a sealed state enforces these terms.
struct ExportTerms {
  bool any_owner = false;  // any caller may use it, and not only the caller who exports it
  std::optional<Duration> expires_in = {};
};

// The engine first copies the state between its steps. Then the call makes the file piece by piece,
// as the client takes the pieces.
class ExportCall final : public Call {
 public:
  // The call is live from enter() on. `state` must outlive the call.
  static std::shared_ptr<ExportCall> make(ServerContext& state, CallStart start, ExportSink& sink);

  // Exports a session of the caller. Refuses the call with the errors of MemoryBudget::take() and
  // Engine::export_session(), and if the terms are out of range or need a seal that is missing.
  void start(std::shared_ptr<const ServedModel> model, const std::string& session,
             const ExportTerms& terms);

 private:
  ExportCall(ServerContext& state, CallStart start, ExportSink& sink);
  Step next() override;
  Status set_terms(const ExportTerms& terms);
  void note(Status outcome);

  ExportSink& sink_;
  std::shared_ptr<StateImage> image_;               // used by the engine until outcome_ is set
  std::shared_ptr<const MemoryBudget::Hold> room_;  // of image_ and a piece

  std::optional<Status> outcome_;  // with mutex_ held; set when the engine is done

  SealTerms terms_;

  // Only the thread with the turn (call.h) uses this.
  std::optional<StateWriter> writer_;
};

}  // namespace runnel
