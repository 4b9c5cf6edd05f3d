// Replaces the parts that need CUDA to compile, in builds without CUDA.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/product_library.h"

namespace runnel {
namespace {

Status absent() {
  return {Code::kFailedPrecondition,
          "this build has no CUDA: build it where nvcc is, or use backend cpu"};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions&) { return absent(); }

namespace cuda {

struct ProductLibrary::Loaded {};

ProductLibrary::~ProductLibrary() = default;
std::vector<std::string> ProductLibrary::usual_files() { return {}; }
Result<std::unique_ptr<ProductLibrary>> ProductLibrary::open(const std::vector<std::string>&) {
  return absent();
}
Status ProductLibrary::plan(const ProductArgs&) { return absent(); }
Status ProductLibrary::run(const ProductArgs&, void*) const { return absent(); }

}  // namespace cuda
}  // namespace runnel
