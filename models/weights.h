// Reads a bundle's tensors into a backend, one after another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/bundle/bundle.h"
#include "models/matrix.h"

namespace runnel {

// The tensors of a linear layer.
struct LinearTensors {
  std::string weight;       // [out, in]
  std::string bias = "";    // [out]; "": no bias
  bool transposed = false;  // the weight is stored as [in, out]
  int64_t first = 0;        // the first row to read of weight and bias, as stored
  int64_t rows = 0;         // the number of rows to read from there; 0: all
  int64_t every = 0;        // and `rows` rows from first + every, first + 2 * every, ...; 0: none
};

// Rows of a tensor: `rows` rows from each of first, first + every, first + 2 * every, ... on.
struct RowRuns {
  int64_t first, rows, every;
};

// Thrown if an element of a tensor is not finite. make_model() returns its status.
struct WeightFault {
  Status status;
};

// Names and shapes are those of the spec's expected_tensors(); load_bundle() has checked both. The
// elements of each tensor are checked before they are used. Throws WeightFault, and std::bad_alloc
// if there is not enough memory.
class WeightReader {
 public:
  // Both must outlive the object.
  WeightReader(const Bundle& bundle, Backend& backend) : bundle_(bundle), backend_(backend) {}

  // A tensor as an fp32 matrix. The last dimension becomes the columns, and all others together the
  // rows.
  Matrix matrix(const std::string& name) const;

  // The same for the tables of Embedding, but as bf16 if the file has bf16 and the backend accepts
  // it.
  Matrix table(const std::string& name) const;

  // The table of the values' vectors. Sets the table of `embedding` to a view of it. The table
  // stays in the file's blocks if the backend accepts them, otherwise it is read as by table().
  Matrix vectors(const std::string& name, Embedding& embedding) const;

  // A packed linear layer: NAME.weight [out, in] and NAME.bias [out]. Several names give one layer
  // with the outputs of all, one after another. Weights that are bf16 in the file are passed to the
  // backend as bf16.
  Weight linear(const std::vector<std::string>& names, Precision precision) const;

  // A packed linear layer whose tensors have other names.
  Weight pack(const LinearTensors& names, Precision precision) const;

  // A packed linear layer with the rows that each of `runs` selects, one after another.
  Weight pack(const std::string& name, std::span<const RowRuns> runs, Precision precision) const;

  // A layer for each run of rows that `names` selects, in order: first those from `first` on, then
  // those from first + every on, and so on. Dimensions before the last two count as rows. Without a
  // bias, and not transposed.
  std::vector<Weight> pack_each(const LinearTensors& names, Precision precision) const;

  // Backend::precise() for the products of a model in this precision.
  Precision precise(Precision of) const { return backend_.precise(of); }

  // A packed linear layer of computed numbers: weight [rows, n], and bias [rows] or empty.
  Weight pack(std::span<const float> weight, int rows, std::span<const float> bias,
              Precision precision) const;

  // The weight of a convolution, [channels, 1, taps], as [taps, channels].
  Matrix taps(const std::string& name) const;

  // All elements of a tensor, as fp32.
  std::vector<float> numbers(const std::string& name) const;

  // A matrix with a row for each tensor. All tensors have the same number of elements.
  Matrix rows(const std::vector<std::string>& names) const;

  // Computed numbers as a matrix with `rows` rows.
  Matrix matrix_of(std::span<const float> numbers, int rows) const;

 private:
  // Checks the elements first.
  const Tensor& tensor(const std::string& name) const;
  // Copies the bytes of a tensor without converting them.
  void copy(const Tensor& from, const Buffer& to) const;
  // Tensors [., in] with `rows` rows in all, for pack(). They are used in place, or copied to
  // `room`.
  HostTensor host_tensor(std::span<const Tensor* const> tensors, int rows, int in,
                         Precision precision, std::vector<std::byte>& room) const;

  const Bundle& bundle_;
  Backend& backend_;
};

}  // namespace runnel
