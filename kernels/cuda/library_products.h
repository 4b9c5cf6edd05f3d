// Computes products with a library, and launches the kernels that these products need before and
// after.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/around_product.h"
#include "kernels/cuda/product_library.h"

namespace runnel::cuda {

class LibraryProducts {
 public:
  // To be called before the first weight is packed. `workspace`: device memory of
  // ProductLibrary::kWorkspaceBytes.
  void use(std::unique_ptr<ProductLibrary> library, Buffer workspace) {
    library_ = std::move(library);
    workspace_ = std::move(workspace);
  }
  bool are_used() const { return library_ != nullptr; }

  // To be called during loading. Chooses algorithms, and allocates memory for inputs.
  template <typename Device>
  Status plan(const Weight& weight, Device& device) {
    const int64_t bytes =
        weight.precision == Precision::kBf16
            ? int64_t{ProductLibrary::kMostRows} * plain_stride(weight.in, weight.precision) * 2
            : 0;
    if (bytes > rounded_.bytes()) rounded_ = device.allocate(bytes, Memory::kDevice);
    return library_->plan(product_of(weight));
  }

  // Calls launch(Kernel(), launch, args) for each launch of a product.
  template <typename LaunchKernel>
  void multiply(View x, const Weight& weight, Activation activation, View out,
                const LaunchKernel& launch) const {
    ProductArgs args = product_of(weight);
    args.relu = activation == Activation::kRelu;
    for (int row = 0; row < x.rows; row += ProductLibrary::kMostRows) {
      args.rows = std::min(x.rows - row, ProductLibrary::kMostRows);
      const View from = x.slice(row, args.rows);
      const View to = out.slice(row, args.rows);
      args.x = from.data;
      args.x_stride = from.stride;
      if (weight.precision == Precision::kBf16) {
        const RoundArgs round = {from.f32(), from.stride, args.rows, x.cols,
                                 rounded_.as<uint32_t>()};
        launch(RoundKernel(), RoundKernel::launch(round), round);
        args.x = rounded_.data();
        args.x_stride = args.weight_stride;
      }
      args.y = to.f32();
      args.y_stride = to.stride;
      launch(LibraryProduct(), Launch{.blocks = 1}, args);
      if (activation != Activation::kGelu) continue;
      const GeluArgs gelu = {args.y, args.y_stride, args.rows, args.out};
      launch(GeluKernel(), GeluKernel::launch(gelu), gelu);
    }
  }

 private:
  ProductArgs product_of(const Weight& weight) const {
    ProductArgs args{};
    args.library = library_.get();
    args.weight = weight.panels.data();
    args.bias = weight.bias.as<float>();
    args.weight_stride = plain_stride(weight.in, weight.precision);
    args.in = weight.in;
    args.out = weight.out;
    args.precision = weight.precision;
    args.workspace = workspace_.data();
    return args;
  }

  std::unique_ptr<ProductLibrary> library_;  // null: the kernels here compute products
  Buffer workspace_, rounded_;               // the library's, and its inputs as bf16
};

}  // namespace runnel::cuda
