// Quantizes the large matrices of a model to blocks of few bits (docs/decisions/blocks.md).
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernels/stored_type.h"
#include "models/bundle/bundle.h"

namespace runnel {

// The sizes of a quantized model.
struct Quantized {
  int64_t matrices = 0, elements = 0;         // in blocks
  int64_t others = 0;                         // tensors that are not in blocks
  int64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

// Makes the directory `out` with a quantized copy of `bundle`, a directory: model.gguf holds the
// tensors under the same names, the large matrices as `type`, for which can_quantize() is true.
// Other files are copied, and of the subdirectories only additional_chat_templates. Gates, decays,
// low-rank factors, convolutions, norms, embeddings, and matrices whose rows are not a multiple of
// 32 keep their types.
// INVALID_ARGUMENT, and no directory, if
// - `out` exists or cannot be written,
// - the bundle is a GGUF file, has blocks already, has no such matrices, or its head is not
//   categorical,
// - a number is too large for the type's scales (the message names the tensor).
Result<Quantized> quantize(const Bundle& bundle, StoredType type, const std::string& out);

}  // namespace runnel
