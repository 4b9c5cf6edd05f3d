#include "server/calls/answered_call.h"

#include "base/within_memory.h"

namespace runnel {

Result<std::shared_ptr<const ServedModel>> AnsweredCall::find_model(const std::string& name) {
  auto model = state_.models.find(caller(), name);
  if (model.ok()) model_ = *model;
  return model;
}

void AnsweredCall::answer_later(std::function<Status()> answer) {
  later_ = std::move(answer);
  state_.writer.post<&AnsweredCall::run_later>(shared_from_this());
}

void AnsweredCall::run_later() {
  const auto later = std::exchange(later_, nullptr);
  const Status status = within_memory(later);
  if (!status.ok()) refuse(status);
}

}  // namespace runnel
