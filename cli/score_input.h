// What `runnel score` is given: the sequences in a file, whatever its kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/model_choice.h"

namespace runnel {

// At most `first` sequences of a file: the images of an idx file (or the one named by '#'), the
// image of a PNG file, or the lines of numbers of a text, which may be standard input ("-"). Each
// has two values or more and fits the model. INVALID_ARGUMENT or NOT_FOUND naming the file,
// expected and found.
Result<std::vector<std::vector<int32_t>>> load_sequences(const std::string& name,
                                                         const ModelView& model, int64_t first);

// The whole of a text file, or of standard input, as one sequence. INVALID_ARGUMENT for a model
// without text, and for what is not UTF-8 or empty.
Result<std::string> load_score_text(const std::string& name, const ModelView& model);

}  // namespace runnel
