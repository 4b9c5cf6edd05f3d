#include "server/calls/state_token.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/field.h"
#include "base/fields.h"

namespace runnel {
namespace {

constexpr int64_t kHeaderBytes = int64_t{1} << 20;
constexpr int64_t kCopies = 8;  // of a token: as a state, sealed, as text, in a message, encoded
constexpr int64_t kGivenCopies = 2;  // of a received token, in the request
constexpr std::string_view kFile = "the state file";

// Rewords the refusal of a state file for a state token. Unless the refusal is INVALID_ARGUMENT,
// its advice is for files, and is replaced.
Status token_status(Status status) {
  std::string message = status.message();
  if (!message.starts_with(kFile)) return status.at_field(fields::kToken);
  message = "the state token" + message.substr(kFile.size());
  if (status.code() != Code::kInvalidArgument) {
    message.resize(std::min(message.size(), message.rfind("; ")));
    message += "; use it where it came from, or send the values again without it";
  }
  Status renamed(status.code(), std::move(message));
  return renamed.at_field(fields::kToken);
}

Status check_wanted(const ServerContext& state, const ServedModel& model,
                    const GenerateRequest& request) {
  if (request.samples != 1) {
    Status status =
        invalid_argument(place_of(fields::kIncludeState) + " is for one sample, and " +
                         place_of(fields::kSamples) + " is " + std::to_string(request.samples));
    return status.at_field(fields::kSamples);
  }
  const int64_t bytes = model.engine->state_bytes();
  if (bytes <= state.token_bytes) return {};
  Status status = invalid_argument(
      "a state of model '" + name_for(request.model, model) + "' has " + std::to_string(bytes) +
      " bytes, and a token of this server at most " + std::to_string(state.token_bytes) +
      ": use a session, or start the server with a larger --token-bytes");
  return status.at_field(fields::kIncludeState);
}

}  // namespace

Status check_tokens(const ServerContext& state, const ServedModel& model,
                    const GenerateRequest& request, const TokenUse& use) {
  if (!state.seal_keys) {
    const std::string_view field = use.given ? fields::kToken : fields::kIncludeState;
    Status status(Code::kFailedPrecondition,
                  "this server has no state tokens: start it with --seal-keys, or leave " +
                      place_of(field) + " out");
    return status.at_field(field);
  }
  for (const auto& [set, field] : {std::pair(request.session.has_value(), fields::kSession),
                                   std::pair(request.state.has_value(), fields::kState),
                                   std::pair(request.keep.value_or(false), fields::kKeep)}) {
    if (!set) continue;
    Status status = invalid_argument(place_of(field) +
                                     " is set, and a call with state tokens starts from its token "
                                     "alone and keeps nothing on the "
                                     "server; leave one of them out");
    return status.at_field(field);
  }
  return use.wanted ? check_wanted(state, model, request) : Status();
}

int64_t bytes_of_tokens(const ServedModel& model, const TokenUse& use) {
  const int64_t bytes = model.engine->state_bytes() + kHeaderBytes;
  const int64_t given =
      use.given ? bytes + kStateHeaderMemory + kGivenCopies * std::ssize(*use.given) : 0;
  return given + (use.wanted ? kCopies * bytes : 0);
}

Result<StateImage> open_token(const ServerContext& state, const ServedModel& model,
                              const Caller& caller, std::string_view token) {
  const StateTarget target = {.spec = model.engine->spec(),
                              .layout = model.engine->layout(),
                              .model = model.state_digest,
                              .needs_seal = true,
                              .keys = &*state.seal_keys,
                              .caller = caller.name,
                              .now = state.clock.unix_time()};
  StateReader reader(
      [&target](const StateHeader& header) {
        const Status status = check_state(header, target);
        return status.ok() ? Result<StateLayout>(target.layout) : Result<StateLayout>(status);
      },
      target.keys);
  if (Status s = reader.add(std::as_bytes(std::span(token))); !s.ok()) return token_status(s);
  Result<StateImage> image = reader.finish();
  if (!image.ok()) return token_status(image.status());
  return image;
}

std::string make_token(const ServerContext& state, const ServedModel& model, const Caller& caller,
                       StateImage image) {
  const SealKey& key = state.seal_keys->front();
  SealTerms terms;
  if (!caller.name.empty()) terms.owner = owner_mark(key, caller.name);
  terms.issued = state.clock.unix_time();
  terms.expires = terms.issued + state.token_ttl / std::chrono::seconds(1);
  StateWriter writer(model.state_digest, model.engine->layout(), std::move(image), &key, terms);
  return writer.next(static_cast<size_t>(writer.size()));
}

PassingSession::~PassingSession() {
  try {
    model_->engine->delete_session(key_, [](const Status&) {});
  } catch (const std::bad_alloc&) {  // the session ends when it has been idle for long
  }
}

}  // namespace runnel
