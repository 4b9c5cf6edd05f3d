// The input of `runnel score`: the sequences in a file of any kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/model_choice.h"

namespace runnel {

// At most `first` sequences of a file: the images of an idx file (or the one that '#' selects), the
// image of a PNG file, or the numbers of a text file, with one sequence per line. The text may come
// from standard input ("-"). Each sequence must have at least two values and fit the model.
// INVALID_ARGUMENT and NOT_FOUND name the file, what was expected and what was found.
Result<std::vector<std::vector<int32_t>>> load_sequences(const std::string& name,
                                                         const ModelView& model, int64_t first);

// A whole text file, or standard input, as one sequence. INVALID_ARGUMENT if the model does not
// take text, or if the text is empty or not UTF-8.
Result<std::string> load_score_text(const std::string& name, const ModelView& model);

}  // namespace runnel
