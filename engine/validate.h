// Checks of a request before it waits for the scheduler: everything that depends on the model and
// on the limits, but not on any session.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/options.h"
#include "engine/request.h"
#include "models/spec.h"

namespace runnel {

// A model and its name in messages: the name that the caller asked for, or else the model's own
// name. The spec and the name must outlive the object.
struct NamedModel {
  NamedModel(const Spec& spec)
      : spec(spec), name(spec.name) {}  // NOLINT(google-explicit-constructor)
  NamedModel(const Spec& spec, std::string_view asked)
      : spec(spec), name(asked.empty() ? spec.name : asked) {}
  std::string quoted() const { return "'" + std::string(name) + "'"; }

  const Spec& spec;
  const std::string_view name;
};

// OK, or INVALID_ARGUMENT that names the field and its limit. Messages use the model's name from
// the request.
Status validate(const GenerateRequest& request, const Spec& spec, const EngineOptions& options);

// - OK.
// - INVALID_ARGUMENT: a penalty is out of its range, or the model's head does not support it.
// - FAILED_PRECONDITION: a penalty needs recent values, and the server keeps none (`recent` is 0).
Status validate_penalties(const Penalties& penalties, const NamedModel& model, int recent);

// OK, or INVALID_ARGUMENT that names `field`: a value is not in the vocabulary, or there are more
// than `at_most` values.
Status validate_values(const std::vector<int32_t>& values, std::string_view field, int64_t at_most,
                       const NamedModel& model);

// OK, or OUT_OF_RANGE if a sequence at `position` has no room for `values` more values, which came
// in `field`. The message names the maximum length of a sequence.
Status validate_length(int64_t position, int64_t values, std::string_view field,
                       const NamedModel& model);

// OK, or INVALID_ARGUMENT: `top_log_probs` is at most kMaxTopLogProbs, and at most the vocabulary.
Status validate_top_log_probs(int top_log_probs, const Spec& spec);

// OK, or INVALID_ARGUMENT: a call may wait for slots for an hour at most.
Status validate_queue_time(Duration max_queue_time);

// OK, or INVALID_ARGUMENT: an id has 1 to kMaxNameLength of the characters A-Z a-z 0-9 . _ : -
// `field` is the field of the request that has the id.
Status validate_session_id(const std::string& id, std::string_view field);

// OK, or INVALID_ARGUMENT: a call names a session or a stored state, but not both. If it could name
// both, it would continue the stored state in the place of the session, and so change the state for
// all other callers.
Status validate_origin(const std::optional<std::string>& session,
                       const std::optional<std::string>& state);

// OK; FAILED_PRECONDITION if sessions cannot be rewound; or INVALID_ARGUMENT for a position that no
// sequence has.
Status validate_rewind(int64_t position, const EngineOptions& options);

// The field of a fork that decides how many children it makes: fields::kChildren if a child has a
// name, else fields::kCount.
std::string_view fork_field(const std::vector<std::string>& children);

// OK, or INVALID_ARGUMENT: a fork has 1 to options.samples children, and their ids are distinct or
// empty.
Status validate_children(const std::vector<std::string>& children, const EngineOptions& options);

}  // namespace runnel
