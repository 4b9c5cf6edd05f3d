// A bundle's tensors on their way into a backend, one after another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/matrix.h"

namespace runnel {

// Where a linear layer's tensors are.
struct LinearTensors {
  std::string weight;       // [out, in]
  std::string bias = "";    // [out]; "": there is none
  bool transposed = false;  // the weight is [in, out]
  int64_t first = 0;        // the first row of weight and bias, as they are stored
  int64_t rows = 0;         // as many from there on; 0: all
  int64_t every = 0;        // and as many again from each row that is this much later; 0: no more
};

// Thrown for a tensor with an element that is not finite; make_model() returns its status.
struct WeightFault {
  Status status;
};

// Names are those of the spec's expected_tensors(), and shapes theirs: load_bundle() has checked
// both. Each tensor's elements are checked before they are used. Throws WeightFault, and
// std::bad_alloc when the memory is not there.
class WeightReader {
 public:
  // Both outlive the object.
  WeightReader(const Bundle& bundle, Backend& backend) : bundle_(bundle), backend_(backend) {}

  // A tensor as fp32: its last dimension are the columns, all others together the rows.
  Matrix matrix(const std::string& name) const;

  // The same for Embedding's tables: as bf16 where the file has them so and the backend takes it.
  Matrix table(const std::string& name) const;

  // The table of the values' vectors, which `embedding` gets a view of: in the blocks of the file
  // where the backend takes them, else as table().
  Matrix vectors(const std::string& name, Embedding& embedding) const;

  // A linear layer, packed: NAME.weight [out, in] and NAME.bias [out]. Of several names: one layer
  // with the outputs of all, one after another. Weights that are bf16 in the file reach the
  // backend as bf16.
  Weight linear(const std::vector<std::string>& names, Precision precision) const;

  // One layer with tensors that are called otherwise.
  Weight pack(const LinearTensors& names, Precision precision) const;

  // Of the backend, for products of a model in this precision.
  Precision precise(Precision of) const { return backend_.precise(of); }

  // The same of numbers made from a file's: [rows, n] and [rows], or no bias.
  Weight pack(std::span<const float> weight, int rows, std::span<const float> bias,
              Precision precision) const;

  // The weight of a convolution, [channels, 1, taps], as [taps, channels].
  Matrix taps(const std::string& name) const;

  // All elements, as fp32.
  std::vector<float> numbers(const std::string& name) const;

  // Elements of several tensors of one size, each a row.
  Matrix rows(const std::vector<std::string>& names) const;

  // Numbers made from a file's, as a matrix of so many rows.
  Matrix matrix_of(std::span<const float> numbers, int rows) const;

 private:
  // After a check of its elements.
  const Tensor& tensor(const std::string& name) const;
  // Copies the bytes of a tensor as they lie.
  void copy(const Tensor& from, const Buffer& to) const;
  // Tensors [., in] with `rows` rows in all, for pack(): where they lie or in `room`.
  HostTensor host_tensor(std::span<const Tensor* const> tensors, int rows, int in,
                         Precision precision, std::vector<std::byte>& room) const;

  const Bundle& bundle_;
  Backend& backend_;
};

}  // namespace runnel
