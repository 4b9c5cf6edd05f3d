#include "kernels/cuda/product_library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>

namespace runnel::cuda {
namespace {

constexpr size_t kAligned = 16;   // bytes: the widest load of a thread
constexpr size_t kUnaligned = 4;  // bytes: the alignment of any fp32
constexpr int kCandidates = 8;    // algorithms that are considered for a bucket

// The key of an algorithm: the shape, the precision, with or without relu, aligned or not, and the
// bucket of rows.
using Key = std::array<int, 6>;

Key key_of(const ProductArgs& args, bool relu, bool aligned, int bucket) {
  return {args.in, args.out, static_cast<int>(args.precision), int{relu}, int{aligned}, bucket};
}

bool is_aligned(const void* data, int64_t stride, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % kAligned == 0 &&
         static_cast<size_t>(stride * element_bytes) % kAligned == 0;
}

int64_t bytes_of(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }

Status internal(const std::string& what, cublasStatus_t status) {
  return {Code::kInternal, "cuBLASLt: " + what + " (status " +
                               std::to_string(static_cast<int>(status)) +
                               "): use --kernels own, or another version of the library"};
}

std::string shape_text(const ProductArgs& args, int rows) {
  return std::to_string(rows) + " x " + std::to_string(args.in) + " by " + std::to_string(args.in) +
         " x " + std::to_string(args.out) +
         (args.precision == Precision::kBf16 ? " in bf16" : " in fp32");
}

}  // namespace

// The functions that are used, looked up by name.
struct ProductLibrary::Loaded {
  void* file = nullptr;
  cublasLtHandle_t handle = nullptr;
  std::map<Key, cublasLtMatmulAlgo_t> plans;

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) init_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) propose = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) look_at = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;

  ~Loaded() {
    if (handle != nullptr) destroy(handle);
    if (file != nullptr) dlclose(file);
  }

  // The name of a function that the file lacks; nullptr if it has all.
  const char* missing();

 private:
  template <typename F>
  void find(F& function, const char* name, const char*& missing) {
    function = reinterpret_cast<F>(dlsym(file, name));
    if (function == nullptr) missing = name;
  }
};

const char* ProductLibrary::Loaded::missing() {
  const char* name = nullptr;
  find(create, "cublasLtCreate", name);
  find(destroy, "cublasLtDestroy", name);
  find(init_operation, "cublasLtMatmulDescInit_internal", name);
  find(set_operation, "cublasLtMatmulDescSetAttribute", name);
  find(init_layout, "cublasLtMatrixLayoutInit_internal", name);
  find(init_preference, "cublasLtMatmulPreferenceInit_internal", name);
  find(set_preference, "cublasLtMatmulPreferenceSetAttribute", name);
  find(propose, "cublasLtMatmulAlgoGetHeuristic", name);
  find(look_at, "cublasLtMatmulAlgoCheck", name);
  find(multiply, "cublasLtMatmul", name);
  return name;
}

namespace {

// The problem in the library's terms. Its matrices are stored by columns and ours by rows, so they
// are transposed: y^T [out x rows] = W [out x in] x^T [in x rows], and a bias is one per row.
struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t weight, x, y;
};

template <typename Functions, typename T>
cublasStatus_t set(const Functions& functions, Problem& problem,
                   cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return functions.set_operation(&problem.operation, attribute, &value, sizeof(T));
}

template <typename Functions>
cublasStatus_t describe(const Functions& functions, const ProductArgs& args, Problem& problem) {
  const cudaDataType_t type = args.precision == Precision::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue =
      args.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  const auto in = static_cast<uint64_t>(args.in);
  const auto out = static_cast<uint64_t>(args.out);
  const auto rows = static_cast<uint64_t>(args.rows);
  const cublasStatus_t all[] = {
      functions.init_operation(&problem.operation, sizeof(problem.operation), CUBLAS_COMPUTE_32F,
                               CUDA_R_32F),
      set(functions, problem, CUBLASLT_MATMUL_DESC_TRANSA, transposed),
      set(functions, problem, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
      set(functions, problem, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias),
      functions.init_layout(&problem.weight, sizeof(problem.weight), type, in, out,
                            args.weight_stride),
      functions.init_layout(&problem.x, sizeof(problem.x), type, in, rows, args.x_stride),
      functions.init_layout(&problem.y, sizeof(problem.y), CUDA_R_32F, out, rows, args.y_stride)};
  const auto* bad = std::ranges::find_if(
      all, [](cublasStatus_t status) { return status != CUBLAS_STATUS_SUCCESS; });
  return bad == std::end(all) ? CUBLAS_STATUS_SUCCESS : *bad;
}

template <typename Functions>
cublasStatus_t prefer(const Functions& functions, size_t alignment,
                      cublasLtMatmulPreferenceOpaque_t& preference) {
  const auto bytes = static_cast<uint64_t>(ProductLibrary::kWorkspaceBytes);
  const auto at_least = static_cast<uint32_t>(alignment);
  const uint32_t weights = kAligned;
  cublasStatus_t status = functions.init_preference(&preference, sizeof(preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = functions.set_preference(&preference, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, weights);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, at_least);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, at_least);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, at_least);
  return status;
}

// Whether an algorithm can do this problem within the workspace.
template <typename Functions>
bool does(const Functions& functions, const ProductArgs& args, const cublasLtMatmulAlgo_t& algo) {
  Problem problem;
  cublasLtMatmulHeuristicResult_t result{};
  return describe(functions, args, problem) == CUBLAS_STATUS_SUCCESS &&
         functions.look_at(functions.handle, &problem.operation, &problem.weight, &problem.x,
                           &problem.y, &problem.y, &algo, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<size_t>(ProductLibrary::kWorkspaceBytes);
}

// Chooses the library's first proposal for the largest number of rows of a bucket that also does
// the smallest.
template <typename Functions>
Status choose(const Functions& functions, ProductArgs args, size_t alignment, int bucket,
              cublasLtMatmulAlgo_t& chosen) {
  args.rows = bucket;
  Problem problem;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  cublasStatus_t status = describe(functions, args, problem);
  if (status == CUBLAS_STATUS_SUCCESS) status = prefer(functions, alignment, preference);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = functions.propose(functions.handle, &problem.operation, &problem.weight, &problem.x,
                               &problem.y, &problem.y, &preference, kCandidates, found, &count);
  }
  ProductArgs fewest = args;
  fewest.rows = bucket / 2 + 1;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (!does(functions, args, found[i].algo) || !does(functions, fewest, found[i].algo)) continue;
    chosen = found[i].algo;
    return {};
  }
  return internal("no algorithm for " + shape_text(args, bucket), status);
}

}  // namespace

ProductLibrary::ProductLibrary(std::unique_ptr<Loaded> loaded) : loaded_(std::move(loaded)) {}
ProductLibrary::~ProductLibrary() = default;

std::vector<std::string> ProductLibrary::usual_files() {
  // Tries the version of the header that this was compiled with first.
  const std::string name = "libcublasLt.so.";
  const std::string here = name + std::to_string(CUBLAS_VER_MAJOR);
  const std::string other = name + (CUBLAS_VER_MAJOR == 13 ? "12" : "13");
  const std::string toolkit = "/usr/local/cuda/lib64/";
  return {here, toolkit + here, other, toolkit + other};
}

Result<std::unique_ptr<ProductLibrary>> ProductLibrary::open(
    const std::vector<std::string>& files) {
  auto loaded = std::make_unique<Loaded>();
  for (const std::string& file : files) {
    loaded->file = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded->file != nullptr) break;
  }
  if (loaded->file == nullptr) {
    std::string names;
    for (const std::string& file : files) names += (names.empty() ? "" : ", ") + file;
    return Status(Code::kNotFound,
                  "--kernels cublas needs NVIDIA's cuBLASLt, of which none is here (" + names +
                      "): install it, name its directory in LD_LIBRARY_PATH, or use --kernels own");
  }
  if (const char* name = loaded->missing(); name != nullptr) {
    return Status(Code::kInternal, std::string("cuBLASLt has no ") + name +
                                       ": use --kernels own, or another version of the library");
  }
  if (const cublasStatus_t status = loaded->create(&loaded->handle);
      status != CUBLAS_STATUS_SUCCESS) {
    loaded->handle = nullptr;
    return internal("it does not start", status);
  }
  return std::unique_ptr<ProductLibrary>(new ProductLibrary(std::move(loaded)));
}

Status ProductLibrary::plan(const ProductArgs& weight) {
  if (loaded_->plans.contains(key_of(weight, false, true, 1))) return {};
  for (const bool aligned : {true, false}) {
    ProductArgs args = weight;
    // Rounded inputs are always aligned, because this library allocates them.
    const int64_t in = (args.in + 3) / 4 * 4;
    const int64_t out = (args.out + 3) / 4 * 4;
    args.x_stride = args.precision == Precision::kBf16 ? args.weight_stride : aligned ? in : in + 1;
    args.y_stride = aligned ? out : out + 1;
    for (const bool relu : {false, true}) {
      args.relu = relu;
      for (int bucket = 1; bucket <= kMostRows; bucket *= 2) {
        cublasLtMatmulAlgo_t algo;
        const size_t alignment = aligned ? kAligned : kUnaligned;
        if (Status s = choose(*loaded_, args, alignment, bucket, algo); !s.ok()) return s;
        loaded_->plans[key_of(args, relu, aligned, bucket)] = algo;
      }
    }
  }
  return {};
}

Status ProductLibrary::run(const ProductArgs& args, void* stream) const {
  const bool aligned = is_aligned(args.x, args.x_stride, bytes_of(args.precision)) &&
                       is_aligned(args.y, args.y_stride, 4);
  const int bucket = static_cast<int>(std::bit_ceil(static_cast<unsigned>(args.rows)));
  const auto plan = loaded_->plans.find(key_of(args, args.relu, aligned, bucket));
  if (plan == loaded_->plans.end()) {
    return {Code::kInternal, "no product of " + shape_text(args, args.rows) + " was planned"};
  }
  Problem problem;
  cublasStatus_t status = describe(*loaded_, args, problem);
  const float one = 1.0F;
  const float zero = 0.0F;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = loaded_->multiply(loaded_->handle, &problem.operation, &one, args.weight,
                               &problem.weight, args.x, &problem.x, &zero, args.y, &problem.y,
                               args.y, &problem.y, &plan->second, args.workspace, kWorkspaceBytes,
                               static_cast<cudaStream_t>(stream));
  }
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return internal("it refused " + shape_text(args, args.rows), status);
}

}  // namespace runnel::cuda
