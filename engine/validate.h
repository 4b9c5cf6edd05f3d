// Checks of a request before it waits for the scheduler: everything that depends on the model and
// on the limits, but not on any session.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/options.h"
#include "engine/request.h"
#include "models/spec.h"

namespace runnel {

// A model by the name that messages give it: the one by which the caller asked for it, else its
// own. Lasts as long as the spec and the name.
struct NamedModel {
  NamedModel(const Spec& spec)
      : spec(spec), name(spec.name) {}  // NOLINT(google-explicit-constructor)
  NamedModel(const Spec& spec, std::string_view asked)
      : spec(spec), name(asked.empty() ? spec.name : asked) {}
  std::string quoted() const { return "'" + std::string(name) + "'"; }

  const Spec& spec;
  const std::string_view name;
};

// OK, or INVALID_ARGUMENT that names the field and its limit. The model has the name that the
// request gives it.
Status validate(const GenerateRequest& request, const Spec& spec, const EngineOptions& options);

// OK; INVALID_ARGUMENT for a penalty out of its range, or one that the model's head has no use for;
// or FAILED_PRECONDITION where the server keeps no `recent` values for it.
Status validate_penalties(const Penalties& penalties, const NamedModel& model, int recent);

// OK, or INVALID_ARGUMENT naming `field` when a value is not in the vocabulary or there are too
// many.
Status validate_values(const std::vector<int32_t>& values, std::string_view field, int64_t at_most,
                       const NamedModel& model);

// OK, or OUT_OF_RANGE naming the length of a sequence, when the `values` more of `field` do not fit
// a sequence at `position`.
Status validate_length(int64_t position, int64_t values, std::string_view field,
                       const NamedModel& model);

// OK, or INVALID_ARGUMENT: so many of the most likely values may be asked for.
Status validate_top_log_probs(int top_log_probs, const Spec& spec);

// OK, or INVALID_ARGUMENT: a call may wait for slots for an hour at most.
Status validate_queue_time(Duration max_queue_time);

// OK, or INVALID_ARGUMENT: an id is 1 to kMaxNameLength characters of A-Z a-z 0-9 . _ : - `field`
// is where the request has it.
Status validate_session_id(const std::string& id, std::string_view field);

// OK; FAILED_PRECONDITION where nothing is kept to go back to; or INVALID_ARGUMENT for a position
// that no sequence has.
Status validate_rewind(int64_t position, const EngineOptions& options);

// The field of a fork that says how many children it makes: fields::kChildren where one has a name,
// else fields::kCount.
std::string_view fork_field(const std::vector<std::string>& children);

// OK, or INVALID_ARGUMENT: the children of a fork are 1 to options.samples; each has an id of its
// own, or an empty one.
Status validate_children(const std::vector<std::string>& children, const EngineOptions& options);

}  // namespace runnel
