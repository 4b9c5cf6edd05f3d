// Matrix products by NVIDIA's cuBLASLt, opened at run time: no program needs it to start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"

namespace runnel::cuda {

class ProductLibrary;

// y = x W^T + b, with relu behind it if asked for. Sums are fp32.
struct ProductArgs {
  const ProductLibrary* library;
  const void* x;                              // [rows, in], of the weight's precision
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

  // Where it is looked for: by the names that the loader knows, and beside the toolkit.
  static std::vector<std::string> usual_files();

  // Opens the first of `files` that is there. NOT_FOUND says which are missing and what
  // to do; INTERNAL that the library does not work here; FAILED_PRECONDITION that this build has no
  // CUDA.
  static Result<std::unique_ptr<ProductLibrary>> open(
      const std::vector<std::string>& files = usual_files());

  ~ProductLibrary();
  ProductLibrary(const ProductLibrary&) = delete;
  ProductLibrary& operator=(const ProductLibrary&) = delete;

  // Chooses, once for each shape, by which algorithm it is multiplied: one for each bucket of rows
  // (1, 2, 3 to 4, 5 to 8, ... kMostRows), with and without relu, for matrices aligned to 16 bytes
  // and for others. All that run() then does is call it. `weight`: its in, out, weight_stride,
  // precision and bias count. INTERNAL where the library has no algorithm.
  Status plan(const ProductArgs& weight);

  // Enqueues a product of 1 to kMostRows rows, whose shape was planned, on a stream (a
  // cudaStream_t). INTERNAL when the library refuses. Allocates nothing.
  Status run(const ProductArgs& args, void* stream) const;

 private:
  struct Loaded;
  explicit ProductLibrary(std::unique_ptr<Loaded> loaded);

  std::unique_ptr<Loaded> loaded_;
};

// In a script among kernels: what is enqueued is the library's.
struct LibraryProduct {
  using Args = ProductArgs;
  static Status enqueue(const Args& args, void* stream) { return args.library->run(args, stream); }
};

}  // namespace runnel::cuda
