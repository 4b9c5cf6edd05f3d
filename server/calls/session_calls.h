// The unary calls about sessions, once for all doors. Each finds its model and has the engine
// answer; the reply, which encodes the answer and sends it, runs on the writer's thread. A status
// that is not OK is a refusal that the door is still to send, and the reply does not run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/calls/answered_call.h"

namespace runnel {

inline constexpr int kLargestPage = 1000;  // of sessions

using SessionReply = std::function<void(const SessionInfo&, const ServedModel&)>;
using SessionsReply = std::function<void(const std::vector<SessionInfo>&, const ServedModel&)>;
using PageReply = std::function<void(const SessionPage&, const ServedModel&)>;

// A fresh session; `id` may be empty, and the server chooses one.
Status create_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      SessionReply reply);

// A session as it is now. NOT_FOUND.
Status get_session(AnsweredCall& call, const std::string& model, const std::string& id,
                   SessionReply reply);

// The caller's sessions of a model, by id, from the one after `after`, which gets the name of the
// model. `size`: 0 for 100; INVALID_ARGUMENT beyond kLargestPage.
Status list_sessions(AnsweredCall& call, const std::string& model, int64_t size,
                     const std::function<Result<std::string>(const std::string& model)>& after,
                     PageReply reply);

// Ends a session. NOT_FOUND.
Status delete_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      std::function<void()> reply);

// Sessions that start where `id` is: those named in `children`, where an empty name is for the
// server to choose; without names, `count` of them, or one. INVALID_ARGUMENT for both, or a count
// that is out of range.
Status fork_session(AnsweredCall& call, const std::string& model, const std::string& id,
                    std::vector<std::string> children, std::optional<int64_t> count,
                    SessionsReply reply);

// Takes a session back to an earlier position. OUT_OF_RANGE.
Status rewind_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      int64_t position, SessionReply reply);

}  // namespace runnel
