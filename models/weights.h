// A bundle's tensors on their way into a backend, one after another.
#pragma once

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/matrix.h"

namespace runnel {

// Names are those of the spec's expected_tensors(), and shapes theirs: load_bundle() has checked
// both. Throws std::bad_alloc when the memory is not there.
class WeightReader {
 public:
  // Both outlive the object.
  WeightReader(const Bundle& bundle, Backend& backend) : bundle_(bundle), backend_(backend) {}

  // A tensor as fp32: its last dimension are the columns, all others together the rows.
  Matrix matrix(const std::string& name) const;

  // The same for Embedding's tables: as bf16 where the file has them so and the backend takes it.
  Matrix table(const std::string& name) const;

  // A linear layer, packed: NAME.weight [out, in] and NAME.bias [out]. Of several names: one layer
  // with the outputs of all, one after another. Weights that are bf16 in the file reach the
  // backend as bf16.
  Weight linear(const std::vector<std::string>& names, Precision precision) const;

 private:
  const Tensor& tensor(const std::string& name) const;

  const Bundle& bundle_;
  Backend& backend_;
};

}  // namespace runnel
