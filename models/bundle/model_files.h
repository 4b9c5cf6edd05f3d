// Checks of a model's files against its spec, whatever the files are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/bundle/safetensors.h"
#include "models/expected_tensor.h"
#include "models/spec.h"
#include "models/text/tokenizer.h"

namespace runnel {

// Every expected tensor that is read is there, and no other one but those whose names begin with a
// text of `skipped`. INVALID_ARGUMENT names `file`, which holds `tensors`, and `asker`, whose sizes
// they follow from.
Status check_names(const std::vector<ExpectedTensor>& expected,
                   std::span<const std::string_view> skipped, const StoredTensors& tensors,
                   const std::string& file, const std::string& asker);

// No token's value is beyond the spec's. INVALID_ARGUMENT names `file` and `asker`, which has the
// number of values.
Status check_values(const Tokenizer& tokenizer, const Spec& spec, const std::string& file,
                    const std::string& asker);

}  // namespace runnel
