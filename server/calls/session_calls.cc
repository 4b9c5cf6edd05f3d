#include "server/calls/session_calls.h"

#include <memory>
#include <utility>

#include "base/fields.h"
#include "base/limits.h"
#include "server/calls/session_changes.h"

namespace runnel {
namespace {

constexpr int kDefaultPage = 100;
constexpr int64_t kEntryBytes = 1024;  // of a session: in the engine's form, and encoded

using Model = std::shared_ptr<const ServedModel>;

// The engine's callback for an outcome. It makes `reply(outcome, model)` run later, or refuses the
// call.
template <typename Outcome, typename Reply>
std::function<void(Result<Outcome>)> later(AnsweredCall& call, Model model, Reply reply) {
  return [kept = call.shared_from_this(), model = std::move(model),
          reply = std::move(reply)](Result<Outcome> outcome) mutable {
    AnsweredCall& answered = *kept;
    answered.answer_later([outcome = std::move(outcome), model = std::move(model),
                           reply = std::move(reply)]() -> Status {
      if (!outcome.ok()) return outcome.status();
      reply(*outcome, *model);
      return {};
    });
  };
}

// Reads the number of children of a fork, and makes that many empty names.
Result<std::vector<std::string>> unnamed(std::optional<int64_t> asked) {
  const int64_t count = asked.value_or(1);
  if (count >= 1 && count <= limits::kSamples.max) {
    return std::vector<std::string>(static_cast<size_t>(count));
  }
  return invalid_argument(place_of(fields::kCount) + " is " + std::to_string(count) +
                          "; it must be between 1 and " + std::to_string(limits::kSamples.max));
}

}  // namespace

Status create_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      SessionReply reply) {
  const auto found = call.find_model(model);
  if (!found.ok()) return found.status();
  create_session(call.context(), *found, call.caller(), id,
                 later<SessionInfo>(call, *found, std::move(reply)));
  return {};
}

Status get_session(AnsweredCall& call, const std::string& model, const std::string& id,
                   SessionReply reply) {
  const auto found = call.find_model(model);
  if (!found.ok()) return found.status();
  get_session(call.context(), *found, call.caller(), id,
              later<SessionInfo>(call, *found, std::move(reply)));
  return {};
}

Status list_sessions(AnsweredCall& call, const std::string& model, int64_t size,
                     const std::function<Result<std::string>(const std::string&)>& after,
                     PageReply reply) {
  const auto found = call.find_model(model);
  if (!found.ok()) return found.status();
  if (size < 0 || size > kLargestPage) {
    return invalid_argument(place_of(fields::kPageSize) + " is " + std::to_string(size) +
                            "; it must be between 0 (for " + std::to_string(kDefaultPage) +
                            ") and " + std::to_string(kLargestPage));
  }
  const int entries = size == 0 ? kDefaultPage : static_cast<int>(size);
  const auto from = after((*found)->name);
  if (!from.ok()) return from.status();
  if (Status s = call.reserve(entries * kEntryBytes); !s.ok()) return s;
  list_sessions(call.context(), *found, call.caller(), *from, entries,
                later<SessionPage>(call, *found, std::move(reply)));
  return {};
}

Status delete_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      std::function<void()> reply) {
  const auto found = call.find_model(model);
  if (!found.ok()) return found.status();
  delete_session(call.context(), *found, call.caller(), id,
                 [kept = call.shared_from_this(), reply = std::move(reply)](const Status& status) {
                   kept->answer_later([status, reply] {
                     if (status.ok()) reply();
                     return status;
                   });
                 });
  return {};
}

Status fork_session(AnsweredCall& call, const std::string& model, const std::string& id,
                    std::vector<std::string> children, std::optional<int64_t> count,
                    SessionsReply reply) {
  const auto found = call.find_model(model);
  if (!found.ok()) return found.status();
  if (!children.empty() && count) {
    return invalid_argument(place_of(fields::kChildren) + " and " + place_of(fields::kCount) +
                            " are both set; name the children or count them");
  }
  if (children.empty()) {
    auto made = unnamed(count);
    if (!made.ok()) return made.status();
    children = std::move(*made);
  }
  if (Status s = call.reserve(std::ssize(children) * kEntryBytes); !s.ok()) return s;
  fork_session(call.context(), *found, call.caller(), id, std::move(children),
               later<std::vector<SessionInfo>>(call, *found, std::move(reply)));
  return {};
}

Status rewind_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      int64_t position, SessionReply reply) {
  const auto found = call.find_model(model);
  if (!found.ok()) return found.status();
  const auto first = [reply = std::move(reply)](const std::vector<SessionInfo>& sessions,
                                                const ServedModel& served) {
    reply(sessions[0], served);
  };
  rewind_session(call.context(), *found, call.caller(), id, position,
                 later<std::vector<SessionInfo>>(call, *found, first));
  return {};
}

}  // namespace runnel
