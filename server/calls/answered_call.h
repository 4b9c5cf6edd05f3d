// A call with one answer. All doors use this class.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/calls/call_report.h"
#include "server/host/live_calls.h"
#include "server/host/memory_budget.h"
#include "server/host/server_context.h"

namespace runnel {

class AnsweredCall : public LiveCall, public std::enable_shared_from_this<AnsweredCall> {
 public:
  // Must not be called before the door has identified the caller.
  const Caller& caller() const { return *start_.caller; }
  ServerContext& context() const { return state_; }
  // ServedModels::find() for the caller. The metrics then count the call under this model.
  Result<std::shared_ptr<const ServedModel>> find_model(const std::string& name);
  // Makes room for this many more bytes of memory. RESOURCE_EXHAUSTED.
  Status reserve(int64_t bytes) { return state_.memory.grow(room_, room_.bytes() + bytes); }

  // Has the writer's thread run `answer` once, so that the scheduler's thread is not delayed.
  // `answer` answers the call. If it returns a status that is not OK, the call is refused with this
  // status. If there is no memory for the answer, the call is refused with RESOURCE_EXHAUSTED.
  void answer_later(std::function<Status()> answer);

  // --- LiveCall ---

  // Does nothing, because the call gets its answer soon in any case.
  void end(const Status& /*status*/) override {}

 protected:
  // `state` must outlive the call.
  AnsweredCall(ServerContext& state, CallStart start) : state_(state), start_(std::move(start)) {}
  // Answers with a refusal.
  virtual void refuse(const Status& status) = 0;

  ServerContext& state_;
  const CallStart start_;
  std::shared_ptr<const ServedModel> model_;  // null before find_model()
  MemoryBudget::Hold room_;

 private:
  void run_later();

  std::function<Status()> later_;
};

}  // namespace runnel
