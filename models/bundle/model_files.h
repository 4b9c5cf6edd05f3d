// Checks a model's files against its spec, for all kinds of files.
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

// Checks that `tensors` has every expected tensor that is read, and no other tensors, except those
// whose names begin with a prefix in `skipped`. INVALID_ARGUMENT names `file`, which has the
// tensors, and `asker`, the file whose sizes decide which tensors are expected.
Status check_names(const std::vector<ExpectedTensor>& expected,
                   std::span<const std::string_view> skipped, const StoredTensors& tensors,
                   const std::string& file, const std::string& asker);

// Checks that no token's value is beyond the spec's vocabulary. INVALID_ARGUMENT names `file` and
// `asker`, the file that has the size of the vocabulary.
Status check_values(const Tokenizer& tokenizer, const Spec& spec, const std::string& file,
                    const std::string& asker);

}  // namespace runnel
