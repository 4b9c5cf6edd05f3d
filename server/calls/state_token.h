// State tokens (docs/state.md#tokens): a sealed state that travels with a call, in place of a
// session that stays on a server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "models/state/file.h"
#include "server/host/server_context.h"

namespace runnel {

// How one call uses tokens.
struct TokenUse {
  std::optional<std::string> given = {};  // the token from which its sequence starts
  bool wanted = false;                    // whether the answer has a token of the state at its end

  bool any() const { return given || wanted; }
};

// OK if the server and the model support tokens, and `request` can use them in this way.
// FAILED_PRECONDITION, INVALID_ARGUMENT.
Status check_tokens(const ServerContext& state, const ServedModel& model,
                    const GenerateRequest& request, const TokenUse& use);

// The bytes of memory that a call takes for its tokens, until the client has received them.
int64_t bytes_of_tokens(const ServedModel& model, const TokenUse& use);

// The state in a token. Only after check_tokens(). Errors as for an import of the state file.
Result<StateImage> open_token(const ServerContext& state, const ServedModel& model,
                              const Caller& caller, std::string_view token);

// A token that only `caller` can use, until limits.token_ttl_ms have passed.
std::string make_token(const ServerContext& state, const ServedModel& model, const Caller& caller,
                       StateImage image);

// A session that a call with tokens runs in. The destructor ends it. If the scheduler's mailbox is
// full, or memory is exhausted, the session lasts until it has been idle for
// limits.idle_timeout_ms.
class PassingSession {
 public:
  PassingSession(std::shared_ptr<const ServedModel> model, SessionKey key)
      : model_(std::move(model)), key_(std::move(key)) {}
  PassingSession(const PassingSession&) = delete;
  PassingSession& operator=(const PassingSession&) = delete;
  ~PassingSession();

  const SessionKey& key() const { return key_; }

 private:
  const std::shared_ptr<const ServedModel> model_;
  const SessionKey key_;
};

}  // namespace runnel
