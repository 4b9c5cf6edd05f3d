// Matrix products by NVIDIA's cuBLASLt. The library is opened at run time, so programs also start
// where it is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"

namespace runnel::cuda {

class ProductLibrary;

// y = x W^T + b, followed by relu if `relu` is set. Sums are fp32.
struct ProductArgs {
  const ProductLibrary* library;
  const void* x;                              // [rows, in], in the weight's precision
  const void* weight;                         // [out, in]
  const float* bias;                          // [out]
  float* y;                                   // [rows, out]
  int64_t x_stride, weight_stride, y_stride;  // in elements, from row to row
  int rows, in, out;
  Precision precision;
  bool relu;
  void* workspace;  // ProductLibrary::kWorkspaceBytes
};

class ProductLibrary {
 public:
  static constexpr int kMostRows = 4096;  // of one product
  static constexpr int64_t kWorkspaceBytes = 32 << 20;

  // The places where the library is searched for: the names that the loader knows, and the folder
  // of the toolkit.
  static std::vector<std::string> usual_files();

  // Opens the first of `files` that exists. NOT_FOUND says which files are missing and what to do.
  // INTERNAL if the library does not work here. FAILED_PRECONDITION if this build has no CUDA.
  static Result<std::unique_ptr<ProductLibrary>> open(
      const std::vector<std::string>& files = usual_files());

  ~ProductLibrary();
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  // Chooses the algorithms for a shape, once for each shape. There is one algorithm for each bucket
  // of rows (1, 2, 3 to 4, 5 to 8, ... kMostRows), with and without relu, for matrices aligned to
  // 16 bytes and for others. run() then only calls the chosen one. The shape is in, out,
  // weight_stride, precision and bias of `weight`. INTERNAL if the library has no algorithm.
  Status plan(const ProductArgs& weight);

  // Enqueues a product of 1 to kMostRows rows on a stream (a cudaStream_t). Its shape must have
  // been planned. INTERNAL if the library refuses. Allocates nothing.
  Status run(const ProductArgs& args, void* stream) const;

 private:
  struct Loaded;
  explicit ProductLibrary(std::unique_ptr<Loaded> loaded);

  std::unique_ptr<Loaded> loaded_;
};

// An entry of a script (script.h): work of the library instead of a kernel.
struct LibraryProduct {
  using Args = ProductArgs;
  static Status enqueue(const Args& args, void* stream) { return args.library->run(args, stream); }
};

}  // namespace runnel::cuda
