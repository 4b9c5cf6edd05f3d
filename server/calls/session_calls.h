// The unary calls about sessions, for all doors. Each finds its model and has the engine answer.
// The reply, which encodes and sends the answer, runs on the writer's thread. If the result is not
// OK, the reply does not run, and the door must send the refusal.
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

// Makes a new session. If `id` is empty, the server chooses one.
Status create_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      SessionReply reply);

// A session as it is now. NOT_FOUND.
Status get_session(AnsweredCall& call, const std::string& model, const std::string& id,
                   SessionReply reply);

// The caller's sessions of a model, in the order of their ids. `after` gets the model's name, and
// returns the id after which the page begins. `size` is the maximum number of sessions of the page;
// 0 means 100; INVALID_ARGUMENT above kLargestPage.
Status list_sessions(AnsweredCall& call, const std::string& model, int64_t size,
                     const std::function<Result<std::string>(const std::string& model)>& after,
                     PageReply reply);

// Ends a session. NOT_FOUND.
Status delete_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      std::function<void()> reply);

// Makes sessions that start where session `id` is. `children` has their names; for an empty name
// the server chooses one. Without `children`, it makes `count` sessions, or one. INVALID_ARGUMENT
// if both are given, or the count is out of range.
Status fork_session(AnsweredCall& call, const std::string& model, const std::string& id,
                    std::vector<std::string> children, std::optional<int64_t> count,
                    SessionsReply reply);

// Rewinds a session to an earlier position. OUT_OF_RANGE.
Status rewind_session(AnsweredCall& call, const std::string& model, const std::string& id,
                      int64_t position, SessionReply reply);

}  // namespace runnel
