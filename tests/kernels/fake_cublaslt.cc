// A fake cuBLASLt for machines without a GPU: the functions that kernels/cuda/product_library.cc
// opens, with a loop instead of kernels. It checks every descriptor, layout, leading dimension,
// alignment and epilogue, and that an algorithm is used for the problem that it was proposed for.
// It returns CUBLAS_STATUS_INVALID_VALUE for anything wrong.
#include <cublasLt.h>

#include <bit>
#include <cstdint>
#include <cstring>

namespace {

struct Operation {
  int32_t compute, scale, transposed_a, transposed_b, epilogue;
  const float* bias;
};
struct Layout {
  int32_t type;
  uint64_t rows, cols;
  int64_t stride;
};
struct Preference {
  uint64_t workspace;
  uint32_t alignment[4];  // of A, B, C, D
};
// The kind of an algorithm, which takes up to `most` rows of this shape. kPicky takes exactly
// `most` rows; kHungry needs more workspace than there is.
enum Kind : uint64_t { kPicky = 71, kHungry, kGood };
struct Algorithm {
  uint64_t kind, most, in, out;
  int32_t type, epilogue;
  uint32_t alignment_x, alignment_y;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr uintptr_t kHandle = 0x5eed;
constexpr uint64_t kWorkspace = 32 << 20;

template <typename T, typename Opaque>
T read(const Opaque* opaque) {
  T value;
  std::memcpy(&value, opaque, sizeof(T));
  return value;
}

template <typename T>
bool take(T& into, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) return false;
  std::memcpy(&into, from, sizeof(T));
  return true;
}

cublasStatus_t valid(bool holds) {
  return holds ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// y [out, rows] = W^T [in, out]^T x [in, rows], all column-major.
bool is_product(const Operation& op, const Layout& w, const Layout& x, const Layout& y) {
  return op.compute == CUBLAS_COMPUTE_32F && op.scale == CUDA_R_32F &&
         op.transposed_a == CUBLAS_OP_T && op.transposed_b == CUBLAS_OP_N &&
         (op.epilogue == CUBLASLT_EPILOGUE_BIAS || op.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) &&
         op.bias != nullptr && (w.type == CUDA_R_16BF || w.type == CUDA_R_32F) &&
         x.type == w.type && y.type == CUDA_R_32F && w.rows == x.rows && w.cols == y.rows &&
         x.cols == y.cols && w.rows > 0 && w.cols > 0 && x.cols > 0 &&
         w.stride >= static_cast<int64_t>(w.rows) && x.stride >= static_cast<int64_t>(x.rows) &&
         y.stride >= static_cast<int64_t>(y.rows);
}

bool is_aligned(const void* data, const Layout& layout, uint32_t alignment) {
  const int64_t element = layout.type == CUDA_R_16BF ? 2 : 4;
  return reinterpret_cast<uintptr_t>(data) % alignment == 0 &&
         layout.stride * element % alignment == 0;
}

bool does(const Algorithm& algorithm, const Operation& op, const Layout& w, const Layout& x,
          const Layout& y) {
  const uint64_t fewest = algorithm.kind == kPicky ? algorithm.most : algorithm.most / 2 + 1;
  return algorithm.kind >= kPicky && algorithm.kind <= kGood && x.cols >= fewest &&
         x.cols <= algorithm.most && algorithm.in == w.rows && algorithm.out == w.cols &&
         algorithm.type == w.type && algorithm.epilogue == op.epilogue &&
         is_aligned(nullptr, x, algorithm.alignment_x) &&
         is_aligned(nullptr, y, algorithm.alignment_y);
}

double element(const void* data, int32_t type, int64_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[index];
  const uint32_t bits = static_cast<const uint16_t*>(data)[index];
  return double{std::bit_cast<float>(bits << 16)};
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = std::bit_cast<cublasLtHandle_t>(kHandle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return valid(std::bit_cast<uintptr_t>(handle) == kHandle);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  const Operation op = {compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                        nullptr};
  std::memset(desc, 0xdb, size);
  std::memcpy(desc, &op, sizeof(op));
  return valid(size == sizeof(*desc));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  auto op = read<Operation>(desc);
  bool taken = false;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) taken = take(op.transposed_a, from, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) taken = take(op.epilogue, from, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) taken = take(op.bias, from, bytes);
  std::memcpy(desc, &op, sizeof(op));
  return valid(taken);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t desc, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t stride) {
  const Layout layout = {type, rows, cols, stride};
  std::memset(desc, 0xdb, size);
  std::memcpy(desc, &layout, sizeof(layout));
  return valid(size == sizeof(*desc));
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t desc, size_t size) {
  const Preference preference = {0, {256, 256, 256, 256}};
  std::memset(desc, 0xdb, size);
  std::memcpy(desc, &preference, sizeof(preference));
  return valid(size == sizeof(*desc));
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t desc,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, size_t bytes) {
  auto preference = read<Preference>(desc);
  bool taken = false;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    taken = take(preference.workspace, from, bytes);
  } else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
    const int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    taken = take(preference.alignment[matrix], from, bytes);
  }
  std::memcpy(desc, &preference, sizeof(preference));
  return valid(taken);
}

// Proposes four algorithms. The first is marked as not supported. The second takes fewer row counts
// than its peers, and the third needs too large a workspace; neither says so here.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preferred, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  const auto op = read<Operation>(desc);
  const auto w = read<Layout>(a);
  const auto x = read<Layout>(b);
  const auto y = read<Layout>(d);
  const auto preference = read<Preference>(preferred);
  const uint32_t* alignment = preference.alignment;
  *count = 0;
  if (std::bit_cast<uintptr_t>(handle) != kHandle || !is_product(op, w, x, y) || c != d ||
      wanted < 4 || preference.workspace != kWorkspace || alignment[2] != alignment[3] ||
      !is_aligned(nullptr, w, alignment[0]) || !is_aligned(nullptr, x, alignment[1]) ||
      !is_aligned(nullptr, y, alignment[3])) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Kind kind : {kGood, kPicky, kHungry, kGood}) {
    const Algorithm algorithm = {kind,   x.cols,      w.rows,       w.cols,
                                 w.type, op.epilogue, alignment[1], alignment[3]};
    cublasLtMatmulHeuristicResult_t& result = found[*count];
    std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
    result.state = *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = 0;
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const auto algorithm = read<Algorithm>(algo);
  const auto op = read<Operation>(desc);
  const auto w = read<Layout>(a);
  const auto x = read<Layout>(b);
  const auto y = read<Layout>(d);
  result->workspaceSize = algorithm.kind == kHungry ? size_t{1} << 40 : kWorkspace;
  return valid(std::bit_cast<uintptr_t>(handle) == kHandle && is_product(op, w, x, y) && c == d &&
               does(algorithm, op, w, x, y));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* weight, cublasLtMatrixLayout_t a, const void* input,
                              cublasLtMatrixLayout_t b, const void* beta, const void* before,
                              cublasLtMatrixLayout_t c, void* output, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const auto algorithm = read<Algorithm>(algo);
  const auto op = read<Operation>(desc);
  const auto w = read<Layout>(a);
  const auto x = read<Layout>(b);
  const auto y = read<Layout>(d);
  if (std::bit_cast<uintptr_t>(handle) != kHandle || !is_product(op, w, x, y) || c != d ||
      before != output || *static_cast<const float*>(alpha) != 1.0F ||
      *static_cast<const float*>(beta) != 0.0F || workspace == nullptr ||
      workspace_bytes != kWorkspace || stream != nullptr || algorithm.kind == kHungry ||
      !does(algorithm, op, w, x, y) || !is_aligned(weight, w, 16) ||
      !is_aligned(input, x, algorithm.alignment_x) ||
      !is_aligned(output, y, algorithm.alignment_y)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memset(workspace, 0xdb, 4096);  // overwrites data that somebody else keeps in the workspace
  for (int64_t row = 0; row < static_cast<int64_t>(x.cols); ++row) {
    for (int64_t out = 0; out < static_cast<int64_t>(w.cols); ++out) {
      double sum = double{op.bias[out]};
      for (int64_t in = 0; in < static_cast<int64_t>(w.rows); ++in) {
        sum += element(input, x.type, row * x.stride + in) *
               element(weight, w.type, out * w.stride + in);
      }
      const bool cut = op.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS && sum < 0.0;
      static_cast<float*>(output)[row * y.stride + out] = cut ? 0.0F : static_cast<float>(sum);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
